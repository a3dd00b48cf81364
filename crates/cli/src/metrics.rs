// SPDX-License-Identifier: GPL-2.0-only
//! `corun metrics`: what VMs get, for Prometheus. It is a process of its own: the daemon that schedules the host has no
//! network listener, and whoever scrapes cannot reach it.

use crate::{output, outputs};
use anyhow::{Context, bail};
use corun_linux::socket;
use corun_linux::watch::{Sampler, Totals, prometheus};
use corun_model::{Nanos, time};
use corun_system::files;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Export counters of VMs and vCPUs in Prometheus' text format
///
/// Prints them once, or keeps writing them to a file for node_exporter's textfile collector, or answers HTTP
/// requests. Changes nothing, like `corun top`. docs/metrics.md defines all metrics.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write them to this file every --interval; it is replaced as a whole, so that readers find it complete. A file
    /// that holds anything other than metrics of corun is not overwritten
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    textfile: Option<PathBuf>,

    /// With --textfile: time between two writes
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = interval, requires = "textfile")]
    interval: Nanos,

    /// Answer GET /metrics on this port of the loopback address, or on ADDRESS:PORT
    #[arg(long, value_name = "PORT", value_parser = address)]
    listen: Option<SocketAddr>,

    /// The daemon's socket
    #[arg(long, value_name = "PATH", default_value = socket::DEFAULT)]
    socket: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  corun metrics
      once
  corun metrics --textfile /var/lib/prometheus/node-exporter/corun.prom
      every 15 s, for node_exporter
  corun metrics --listen 9345
      on http://127.0.0.1:9345/metrics

Exit codes: 0 done; 1 they could not be written, or ADDRESS could not be listened on; 2 wrong usage, or the
file holds something other than metrics of corun.";

fn interval(text: &str) -> Result<Nanos, String> {
    let interval = time::parse(text).filter(|time| *time >= time::SEC);
    interval.ok_or_else(|| format!("expected 1s or more, {}", time::ACCEPTED))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let port = text.parse::<u16>().ok().map(loopback);
    let address = port.or_else(|| text.parse().ok());
    address.ok_or_else(|| "expected PORT or ADDRESS:PORT, such as 9345 or [::1]:9345".to_string())
}

/// Runs the command.
///
/// # Errors
/// If counters cannot be written, or the address is not available.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut exporter = Exporter {
        sampler: Sampler::new(Some(args.socket.clone())),
        totals: Totals::default(),
    };
    if let Some(file) = &args.textfile {
        outputs::spare_foreign("--textfile", file, "corun metrics", prometheus::BEGINNING)?;
        loop {
            // The collector reads `*.prom`: an incomplete file has another name.
            files::replace(file, exporter.text().as_bytes())
                .with_context(|| file.display().to_string())?;
            std::thread::sleep(Duration::from_nanos(args.interval));
        }
    }
    match args.listen {
        Some(address) => serve(address, &mut exporter),
        None => output::print(&exporter.text()),
    }
}

/// Looks again and again, and remembers.
struct Exporter {
    sampler: Sampler,
    totals: Totals,
}

impl Exporter {
    fn text(&mut self) -> String {
        let sample = self.sampler.sample();
        self.totals.add(&sample);
        prometheus::text(&sample, &self.totals)
    }
}

/// How long a client may take to ask, and to take its answer: there is only one at a time.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const LONGEST: usize = 8192;

fn serve(address: SocketAddr, exporter: &mut Exporter) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    output::note(&format!("corun: http://{}/metrics", listener.local_addr()?));
    loop {
        // Whatever clients do, it is not our failure.
        if let Some(stream) = next_client(&listener) {
            let _ = answer(stream, exporter);
        }
    }
}

/// The next client; `None`, after a pause, if the kernel refuses the connection.
fn next_client(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(_) => {
            std::thread::sleep(socket::PAUSE);
            None
        }
    }
}

fn answer(mut stream: TcpStream, exporter: &mut Exporter) -> anyhow::Result<()> {
    let request = request(&mut stream)?;
    let (status, body) = match request.split_whitespace().collect::<Vec<_>>()[..] {
        ["GET", target, ..] if path(target) == "/metrics" => ("200 OK", exporter.text()),
        ["GET", ..] => ("404 Not Found", "see /metrics\n".to_string()),
        _ => ("405 Method Not Allowed", "only GET\n".to_string()),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    hand_over(&mut stream, &(head + &body), Instant::now() + PATIENCE)
}

/// The target without its query, which means nothing here.
fn path(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

/// Writes all of it before `until`: otherwise a client that takes a little now and then would keep all others waiting.
fn hand_over(stream: &mut TcpStream, answer: &str, until: Instant) -> anyhow::Result<()> {
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the answer was not taken in time");
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest)? {
            0 => bail!("the client left"),
            count => rest = &rest[count..],
        }
    }
    Ok(())
}

/// The first line of a request, once its head is complete; a client has [`PATIENCE`] in all.
fn request(stream: &mut TcpStream) -> anyhow::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > LONGEST {
            bail!("no request in time, or too long");
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => bail!("the client left"),
            count => head.extend_from_slice(&chunk[..count]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    Ok(head.lines().next().unwrap_or_default().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut exporter = Exporter {
            sampler: Sampler::below(std::path::Path::new("/nowhere")),
            totals: Totals::default(),
        };
        let _ = answer(listener.accept().unwrap().0, &mut exporter);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn it_answers_what_prometheus_asks_and_nothing_else() {
        let good = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
        assert!(good.contains("\ncorun_daemon_up 0\n"), "{good}");
        assert!(ask("GET /metrics?x=1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(ask("GET /metricsx HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask("\0\0\r\n\r\n").starts_with("HTTP/1.1 405"));
    }

    /// For lack of descriptors, for example: the client stays in the queue, so without a pause the next try would
    /// fail at once, and keep a pCPU busy.
    #[test]
    fn after_a_connection_that_the_kernel_refuses_there_is_a_pause() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let began = Instant::now();
        assert!(next_client(&listener).is_none());
        assert!(began.elapsed() >= socket::PAUSE);
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(next_client(&listener).is_some());
    }

    #[test]
    fn who_takes_its_answer_too_slowly_does_not_get_it() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let over = hand_over(&mut stream, "answer", Instant::now());
        assert!(over.unwrap_err().to_string().contains("in time"));
        assert!(hand_over(&mut stream, "answer", Instant::now() + PATIENCE).is_ok());
    }

    #[test]
    fn a_bare_port_is_on_the_loopback_address() {
        assert!(address("9345").unwrap().ip().is_loopback());
        assert_eq!(address("0.0.0.0:80").unwrap().to_string(), "0.0.0.0:80");
        assert!(address("host:80").is_err() && address("70000").is_err());
    }
}
