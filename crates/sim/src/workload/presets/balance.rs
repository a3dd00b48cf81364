// SPDX-License-Identifier: GPL-2.0-only
//! What the balance scheduling paper runs (Sukwong and Kim, EuroSys 2011, §5).

use super::clients::{PresetClient, Sends};
use super::shapes::Shape;
use super::{Calls, Preset, x264};
use corun_model::time::{MS, SEC};

pub(super) const ABOUT: &str = "The programs of the balance scheduling paper (Sukwong and Kim, \
    EuroSys 2011, §5), on 2.66 GHz Core 2 processors.";

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "cpu",
        "The balance paper's CPU-bound workload: endless additions, hardly any memory or I/O. One \
         process per vCPU. The length of the statement has no effect.",
        Shape::Alike(|vcpus| vcpus, "cpu", "loop { compute 100ms }"),
    ),
    Preset::new(
        "independent",
        "The balance paper's multiple independent processes: finite loops of arithmetic without \
         synchronisation. One process per vCPU; 100 loops of 10 ms are assumed. What the paper \
         measures is when the last one is done: then all begin anew (that is the barrier, not the \
         program's). A run of 30 or 300 loops makes no difference beyond 3 %.",
        Shape::Own(|vcpus| vcpus, independent),
    ),
    Preset::new(
        "pi",
        "Pi digits on several threads (balance paper: CPU-bound, fits memory, relatively small \
         application synchronisation). Each thread sums terms and adds its partial sum under a \
         mutex; 10 ms between sums is assumed (rare, as the paper says), 1 us is an addition of \
         shared numbers under a lock (the paper's lock holding time, §4.4).",
        Shape::Alike(
            |vcpus| vcpus,
            "pi",
            "loop { compute 10ms ±10%; mutex sum { compute 1us }; count sums }",
        ),
    ),
    Preset::new(
        "hackbench",
        "hackbench.c: a group is 20 senders and as many receivers, each receiver on a Unix socket of its \
         own to which every sender writes in turn (balance paper: intensive synchronisation in the \
         guest kernel). One group: the paper's \"four threads with 10,000 loops\" and 9.02 s do not go \
         together as the program counts, where 4 are four groups or 16 million messages; one group \
         makes 4 million. A send or receive of 100 bytes takes about 2 us (lmbench measures 5-10 us \
         for a Unix-socket round trip of 4 calls and 2 switches; cited from memory). For 300 ns of it \
         the socket's spin locks are held, to queue the message or take it off \
         (unix_stream_sendmsg() and _recvmsg() of Linux 2.6.33): three lines that another CPU wrote \
         last, 80 ns each, and 60 ns of instructions (assumed); ±50 % as caches hit or miss \
         (assumed: without it the threads would march in step). The socket holds 348 messages, \
         as Linux 2.6.33's does (net/core/sock.c, skbuff.c): 256 x (232 + 256) bytes of send buffer by \
         default, a message of 100 bytes counting for 128 + 232, and one more is begun while they fit \
         (232 is sizeof(struct sk_buff), counted for the options of 64-bit distributions; since Linux 3.2 \
         it is 212,992 bytes and 768 a message: 278). Senders that found it full are woken once no more than a \
         quarter of it is taken, 86 messages, and all of them (unix_writable(), unix_write_space() of \
         net/unix/af_unix.c).",
        Shape::Own(|_| HACKBENCH_GROUP, hackbench),
    ),
    Preset::new(
        "x264",
        "Video encoding as the Phoronix test of 2010 does it (profile x264 1.1.0, from November 2009 to \
         November 2010: x264 of 2009-11-18 with its assembler, `--threads` as many as cores, else \
         defaults, on soccer_4cif.y4m, 704x576; balance paper: multi-threaded, CPU-bound, frames per \
         second). A main thread takes a frame's type from the lookahead's thread, starts the frame, and \
         waits for the oldest one, so that frames end in order. A row of macroblocks waits until the \
         P-frame that it refers to is far enough ahead, 6 rows with four frame threads \
         (x264_validate_parameters(): mv_range_thread of 72 lines, and 24 for filters). That test's clip \
         could not be had; that version was run on three others, scaled to 704x576 (132, 250 and 120 \
         frames, on an AMD EPYC): a P-frame took 2.1, 2.2 and 2.4 times a B-frame's CPU time and had 1.0, \
         1.1 and 1.8 B-frames after it, and deciding on types took 14, 16 and 12 % of encoding's. Here a \
         P-frame takes 2.1 times as long and has one B-frame after it, and deciding takes 13 %. (By the \
         rules above and the CPU time of each of those frames, four frame threads are busy for 67, 79 and \
         66 % of the time; with these figures for 74 %.) A row of 44 macroblocks takes 1540 us on \
         average: 35 us each make about 30 frames/s of 640x360 on one core, the order of 2.66 GHz Core 2 \
         (assumed); ±30 % for differences in content (assumed). The lookahead has at most 2 n + 2 frames \
         that are neither encoded nor among the 40 looked ahead at; reading and copying a frame of 600 KB \
         and halving it take 2 ms (assumed). Working set of a frame thread: 48 rows of pixels of three \
         frames, each in four planes 768 wide (whole, and between pixels in three directions), 12 x 37 \
         KB, and some 60 KB of colour and of the frames read and written; each line is used in each row.",
        Shape::Own(|vcpus| vcpus, x264::threads),
    ),
    Preset::new(
        "compile",
        "rpmbuild of libvirt, as many jobs as vCPUs (balance paper: multi-process). A job compiles \
         one file after another: 400 ms each (assumed: C files of a few hundred lines with their \
         headers). A compiler touches about 30 MB of fresh memory (assumed) = 7500 pages; the kernel \
         refills a CPU's list of free pages 31 at a time (pcp batch) under the zone's lock, so 7500 \
         / 31 = 240 times or every 400 ms / 240 = 1.7 ms, for 2 us (31 pages at some 60 ns each, \
         assumed). Objects stay in the page cache.",
        Shape::Alike(|vcpus| vcpus, "job", COMPILER),
    ),
    Preset::new(
        "tpcw-proxy",
        "TPC-W's front tier (balance paper: Apache as proxy, up to 250 clients; an emulated browser \
         thinks 7 s, TPC-W clause 5.3.1.1, cited from memory). 200 us to parse and pass on, 100 us \
         for the answer (assumed: a proxied request of Apache takes a few 100 us). Calls port `app` \
         of `tpcw-web` in another VM, to be connected by a `[channel]`.",
        Shape::Alike(
            |_| 32,
            "proxy",
            "loop { request http; compute 200us ±50%; transmit app 1KB; request app; \
             compute 100us ±50%; reply http 8KB; count pages }",
        ),
    )
    .with(&[PresetClient::thinking("http", 250, 512, 7 * SEC)])
    .calling(Calls {
        port: "app",
        preset: "tpcw-web",
        serves: "app",
    }),
    Preset::new(
        "tpcw-web",
        "TPC-W's application tier (balance paper: Tomcat 5): a servlet of 3 ms with three queries \
         (assumed: TPC-W's pages do one to six), on a pool of 32 threads with a connection each. \
         Calls port `sql` of `tpcw-db` in another VM, to be connected by a `[channel]`.",
        Shape::Alike(
            |_| 32,
            "servlet",
            "loop { request app; loop 3 { compute 1ms exp; transmit sql 300B; request sql }; \
             mutex sessions { compute 10us }; reply app 8KB; count pages }",
        ),
    )
    .with(&[PresetClient::thinking("app", 250, 1024, 7 * SEC)])
    .calling(Calls {
        port: "sql",
        preset: "tpcw-db",
        serves: "sql",
    }),
    Preset::new(
        "tpcw-db",
        "TPC-W's database tier (balance paper: MySQL): a thread per connection; 1 ms per query \
         (assumed: joins over items in memory), of which 20 us under the storage engine's kernel \
         mutex (assumed 2 %).",
        Shape::Alike(
            |_| 32,
            "connection",
            "loop { request sql; compute 980us exp; mutex kernel { compute 20us }; reply sql 2KB; \
             count queries }",
        ),
    )
    // Tomcat's pool, three queries per 7 s of each of 250 browsers.
    .with(&[PresetClient::thinking("sql", 32, 300, 300 * MS)]),
    Preset::new(
        "dvdstore",
        "Dell's DVD store: Apache and MySQL in one VM (balance paper: 100 clients that think 5 s; \
         I/O and network intensive). A page of 4 ms of PHP (assumed) with three queries of 1 ms \
         (assumed) over a connection of its own; one query in three reads a page of 16 KiB (InnoDB's) \
         from the disk (assumed); the log's mutex is held for 20 us. 16 pairs of processes (assumed).",
        Shape::Own(|_| 32, dvdstore),
    )
    .with(&[PresetClient::thinking("http", 100, 512, 5 * SEC)]),
    Preset::new(
        "bzip2",
        "bzip2 of a 460 MB file (balance paper: single thread, mostly user mode). Blocks of 900 kB, \
         7.6 MB of memory (bzip2's manual: 400k + 8 x 900k), of which sorting keeps 4 MiB busy at 12 \
         lines/us (as `spec-bzip2`); 90 ms per block (assumed: 10 MB/s on a \
         Core 2), a quarter as many bytes written back later by the kernel's flusher.",
        Shape::Own(|_| 1, |_| {
            writing(
                "bzip2",
                "memory 4MB 12/us; \
                 loop { read 900KB; compute 90ms ±20%; count blocks; send dirty }",
                "225KB",
            )
        }),
    ),
    Preset::new(
        "untar",
        "Tar of a compressed 1.1 GB archive (balance paper: single thread, user mode and kernel \
         I/O). Reads 64 KiB, unpacks 256 KiB in 5 ms (assumed: gunzip writes 50 MB/s on a Core 2) \
         into 16 files of 16 KiB; making one takes 30 us in the kernel, 10 us of it under the \
         directory's inode lock (assumed). Written back later by the kernel's flusher, 4 MiB at a time \
         (MAX_WRITEBACK_PAGES, 1024 pages, of Linux 2.6.31), in one piece: ext4 allocates blocks when \
         they are written (delayed allocation), one file's behind another's.",
        Shape::Own(|_| 1, |_| {
            let tar = "loop { read 64KB; compute 5ms ±20%; \
                       loop 16 { compute 20us; lock inode { compute 10us }; count files }; send dirty }";
            let flusher = "queue dirty 64; loop { loop 16 { recv dirty; compute 1us }; write 4MB }";
            let thread = |name: &str, text: &str| (name.to_string(), text.to_string());
            vec![thread("tar", tar), thread("flusher", flusher)]
        }),
    ),
    Preset::new(
        "ttcp",
        "TTCP sending over TCP (balance paper: single thread, relies on the guest's kernel). Buffers \
         of 8 KiB (its default -l 8192); its own work is a call, 1 us; what the kernel does for each \
         packet is the guest's.",
        Shape::Alike(
            |_| 1,
            "ttcp",
            "loop { compute 1us; transmit bulk 8KB; count buffers }",
        ),
    )
    .with(&[PresetClient {
        port: "bulk",
        sends: Sends::Nothing,
    }]),
    Preset::new(
        "ping",
        "The target of pings every 1 ms (balance paper, experiment 7). No threads: the guest's \
         kernel answers. What counts is the round trip that the client sees.",
        Shape::Own(|_| 0, |_| Vec::new()),
    )
    .with(&[PresetClient {
        port: "",
        sends: Sends::Pings(MS),
    }]),
    Preset::new(
        "bonnie",
        "Bonnie++: one test after the other (balance paper: a thread per test), shortened to rounds \
         of 4 MiB each of writing, reading and seeking in Bonnie's chunks of 8 KiB. The kernel joins \
         written chunks to requests of 512 KiB (assumed) and holds the inode's lock for 5 us per chunk \
         (assumed: copying 8 KiB and dirtying two pages); the three seekers read one after the other, \
         and write back one block in ten (its readme), here at once.",
        Shape::Alike(
            |_| 1,
            "bonnie",
            "loop { \
               loop 8 { loop 64 { compute 2us; lock inode { compute 5us } }; write 512KB; \
                        count 512 KiB }; \
               loop 512 { read 8KB; compute 2us; count 8 KiB }; \
               loop 51 { loop 10 { read 8KB random; compute 2us; count 8 KiB }; \
                         write 8KB random } }",
        ),
    ),
    Preset::new(
        "disk",
        "The balance paper's disk workload, two processes (experiment 4): each creates, writes and \
         deletes small files, and both want the directory's inode lock. Creating and deleting take \
         20 us each under the lock, writing 30 us without (assumed: ext4 on a Core 2 makes some 10,000 \
         files/s); the journal goes to the disk after 100 files, 64 KiB (assumed).",
        Shape::Alike(
            |_| 2,
            "files",
            "loop { loop 100 { lock inode { compute 20us ±50% }; compute 30us ±50%; \
             lock inode { compute 20us ±50% }; count files }; write 64KB }",
        ),
    ),
];

/// A compiler as in `compile`: 240 refills of the list of free pages.
pub(super) const COMPILER: &str = "memory 8MB 10/us; \
    loop { loop 240 { compute 1700us ±30%; lock zone { compute 2us } }; count files }";

/// Processes, each of which is begun anew when the last one is done.
fn independent(threads: u32) -> Vec<(String, String)> {
    let end = if threads > 1 { "; barrier end" } else { "" };
    let text = format!("loop {{ loop 100 {{ compute 10ms; count loops }}{end} }}");
    (0..threads)
        .map(|i| (format!("process{i}"), text.clone()))
        .collect()
}

/// Threads of a group of hackbench: `num_fds` senders and as many receivers.
const HACKBENCH_GROUP: u32 = 40;

/// How many messages fit into a socket, and how many are left when senders that found it full are woken.
const SOCKET: &str = "348 86";

/// In each group the first half sends to all of the second.
fn hackbench(threads: u32) -> Vec<(String, String)> {
    let threads = threads.max(2).next_multiple_of(2);
    let member = |i: u32| {
        let first = i / HACKBENCH_GROUP * HACKBENCH_GROUP;
        let half = (threads - first).min(HACKBENCH_GROUP) / 2;
        let receivers = first + half..first + 2 * half;
        if receivers.contains(&i) {
            let text = format!(
                "loop {{ recv socket{i}; lock socket{i} {{ compute 300ns ±50% }}; \
                 compute 1700ns ±50%; count messages }}"
            );
            return (format!("receiver{i}"), text);
        }
        let sockets = receivers
            .clone()
            .map(|to| format!("queue socket{to} {SOCKET}; "));
        let sends = receivers.map(|to| {
            format!(
                "compute 1700ns ±50%; lock socket{to} {{ compute 300ns ±50% }}; send socket{to}; "
            )
        });
        let text = format!(
            "{}loop {{ {}}}",
            sockets.collect::<String>(),
            sends.collect::<String>()
        );
        (format!("sender{i}"), text)
    };
    (0..threads).map(member).collect()
}

/// Apache processes, each with its connection to MySQL.
fn dvdstore(threads: u32) -> Vec<(String, String)> {
    let pair = |i: u32| {
        let web = format!(
            "queue query{i} 1; loop {{ request http; compute 1ms ±50%; \
             loop 3 {{ send query{i}; recv rows{i}; compute 1ms ±50% }}; reply http 10KB; count pages }}"
        );
        let query = "compute 1ms exp; mutex log { compute 20us }";
        let sql = format!(
            "queue rows{i} 1; loop {{ \
             recv query{i}; {query}; read 16KB random; send rows{i}; \
             loop 2 {{ recv query{i}; {query}; send rows{i} }} }}"
        );
        [(format!("apache{i}"), web), (format!("mysql{i}"), sql)]
    };
    (0..threads.div_ceil(2)).flat_map(pair).collect()
}

/// A thread that sends to the queue `dirty`, and the flusher that writes `size` for each.
pub(super) fn writing(name: &str, text: &str, size: &str) -> Vec<(String, String)> {
    let flusher = format!("queue dirty 64; loop {{ recv dirty; write {size} }}");
    vec![
        (name.to_string(), text.to_string()),
        ("flusher".to_string(), flusher),
    ]
}
