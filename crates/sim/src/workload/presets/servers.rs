// SPDX-License-Identifier: GPL-2.0-only
//! Web, mail and media servers, and a network test.

use super::Preset;
use super::clients::PresetClient;
use super::shapes::Shape;
use corun_model::time::SEC;

pub(super) const ABOUT: &str = "Servers and their clients on another machine. What packets cost in \
    the guest's kernel is the guest's; the times here are the programs' own, and assumed where \
    nothing else is said.";

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "nginx",
        "Nginx serving its welcome page to ApacheBench (vSMT-IO): a worker per vCPU \
         (worker_processes auto), 20 us per request besides what its packets cost (assumed: some 30,000 \
         small pages per second and core in all), 612 bytes and 233 of headers. 100 connections (ab -c 100 -k).",
        Shape::Alike(
            |vcpus| vcpus,
            "worker",
            "loop { request http; compute 20us ±30%; reply http 845B; count pages }",
        ),
    )
    .with(&[PresetClient::eager("http", 100, 100)]),
    Preset::new(
        "nginx-watermark",
        "Nginx with PHP watermarking images (vMigrater: I/O and computing at the same time): reads an \
         image of 256 KiB (assumed), decodes, blends and encodes its megapixel in 30 ms (assumed: GD \
         at some 30 ns per pixel), sends it. Eight PHP processes, as many clients that do not think \
         (assumed). Needs a `[device]`.",
        Shape::Alike(
            |_| 8,
            "php",
            "memory 1MB 5/us; loop { request http; read 256KB; compute 30ms ±30%; \
             reply http 256KB; count images }",
        ),
    )
    .with(&[PresetClient::eager("http", 8, 512)]),
    Preset::new(
        "mediatomb",
        "MediaTomb transcoding videos (vMigrater: each task mixes I/O and computing). A second of \
         video is 512 KiB (4 Mbit/s) and takes 100 ms (assumed: ten times as fast as it plays, the \
         order of SD video on a core), frame by frame: 25 of 20 KiB and 4 ms, with three frames of 720 x 576 x 1.5 bytes = 1.9 MB at hand. Four viewers that \
         download (assumed). Needs a `[device]`.",
        Shape::Alike(
            |_| 4,
            "transcoder",
            "memory 2MB 5/us; loop { request media; loop 25 { read 20KB; compute 4ms ±30% }; \
             reply media 512KB; count seconds }",
        ),
    )
    .with(&[PresetClient::eager("media", 4, 512)]),
    Preset::new(
        "sockperf",
        "Sockperf's TCP ping-pong: one message of 14 bytes (its least) goes to and fro; the server's \
         own work is 1 us (assumed: a loop around recv and send).",
        Shape::Alike(
            |_| 1,
            "sockperf",
            "loop { request pong; compute 1us; reply pong 14B; count messages }",
        ),
    )
    .with(&[PresetClient::eager("pong", 1, 14)]),
    Preset::new(
        "wordpress",
        "WordPress (AQL: web server and CGI, network and CPU at once): a page is 40 ms of PHP (assumed: \
         uncached pages take 30-100 ms), in which 20 queries of 200 us go to tables that share a mutex \
         for 10 us each (assumed), and 40 KiB. Eight PHP processes; 20 readers that think a second \
         (assumed).",
        Shape::Alike(
            |_| 8,
            "php",
            "memory 4MB 8/us; loop { request http; \
             loop 20 { compute 2ms ±30%; mutex tables { compute 10us } }; \
             reply http 40KB; count pages }",
        ),
    )
    .with(&[PresetClient::thinking("http", 20, 512, SEC)]),
    Preset::new(
        "specweb",
        "SPECweb2009 (its design documents: banking and shop, each page a dynamic script and the images \
         in it): 3 ms per page (assumed: PHP), 35 KiB with its images (assumed). 500 sessions that think \
         10 s (assumed: the order of TPC-W's 7 s), 32 processes (assumed).",
        Shape::Alike(
            |_| 32,
            "httpd",
            "memory 4MB 8/us; loop { request http; compute 3ms ±50%; reply http 35KB; \
             count pages }",
        ),
    )
    .with(&[PresetClient::thinking("http", 500, 512, 10 * SEC)]),
    Preset::new(
        "specmail",
        "SPECmail2009: IMAP and SMTP by turns. Fetching is 500 us and 16 KiB from a random place of \
         the mail store, delivering 500 us and 16 KiB synced to it (assumed: mails of some 16 KiB). 32 \
         processes; 200 users with a request a second (assumed). Needs a `[device]`.",
        Shape::Alike(
            |_| 32,
            "mail",
            "loop { request mail; compute 500us ±50%; read 16KB random; reply mail 16KB; \
             count operations; \
             request mail; compute 500us ±50%; lock directory { compute 10us }; \
             write 16KB random; reply mail 64B; count operations }",
        ),
    )
    .with(&[PresetClient::thinking("mail", 200, 1024, SEC)]),
];
