// SPDX-License-Identifier: GPL-2.0-only
//! Programs that are mostly disk.

use super::Preset;
use super::balance::writing;
use super::shapes::{Shape, Stage};

pub(super) const ABOUT: &str = "Programs that read and write files, most of them doing little else; their VM needs a `[device]`. `read` \
    goes on in the thread's file through the page cache with read-ahead, `read … random` is direct. \
    What a call costs in the guest's kernel is the guest's; the times here are the programs' own.";

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "sysbench-seqread",
        "SysBench fileio seqrd: one thread, blocks of 16 KiB (its defaults). 5 us between reads \
         (assumed: bookkeeping of an event, two looks at the clock).",
        Shape::Alike(
            |_| 1,
            "seqrd",
            "loop { read 16KB; compute 5us; count reads }",
        ),
    ),
    Preset::new(
        "sysbench-randread",
        "SysBench fileio rndrd: as `sysbench-seqread`, anywhere in its files, past the page cache \
         (`--file-extra-flags=direct`; files larger than memory behave alike).",
        Shape::Alike(
            |_| 1,
            "rndrd",
            "loop { read 16KB random; compute 5us; count reads }",
        ),
    ),
    Preset::new(
        "bursty-read",
        "vMigrater's bursty read, its authors' own (apps/micro_benchmarks/sio/io_original_bursty.c of \
         github.com/hku-systems/vMigrater): after every 100 reads of 4 KiB in a row it counts to eight \
         million. On a vCPU of its own it read 20.6 MB/s (`results` there), so 400 KiB take 19.0 ms; 0.8 of \
         these are the SSD's, which gave 521 MB/s (apps/motivation), and 18.2 ms computing.",
        Shape::Alike(
            |_| 1,
            "bursts",
            "loop { loop 100 { read 4KB; count reads }; compute 18200us }",
        ),
    ),
    Preset::new(
        "hdfs",
        "TestDFSIO reading from HDFS: a map task and a datanode's thread for each file, a file per two \
         vCPUs (assumed). The datanode reads and sends packets of 64 KiB \
         (dfs.client-write-packet-size): 30 us (assumed: copies at 2 GB/s); the client checks their \
         CRCs and counts: 100 us (assumed: Java at 650 MB/s). A socket holds four packets (tcp_rmem's \
         default of some 200 KiB).",
        Shape::Own(|vcpus| vcpus, hdfs),
    ),
    Preset::new(
        "leveldb",
        "LevelDB, random scans (vMigrater, Table 1: \"Random scan table with db.bench\"). A scan finds its start in 10 us (assumed: index blocks are \
         cached) and reads 16 blocks of 4 KiB (its default), 64 KiB from a random place; 100 entries \
         at 0.5 us to walk over (assumed). The script that the authors published \
         (apps/macro_benchmarks/bench4/leveldb/leveldb_table_scan.sh of github.com/hku-systems/vMigrater) is \
         not followed: it has db_bench do fillsync, which there puts a thousandth of --num=5000000 \
         entries of 116 bytes into the database, and readrandom, which then reads these 580 KB from the page \
         cache.",
        Shape::Alike(
            |_| 1,
            "scan",
            "memory 8MB 10/us; \
             loop { compute 10us ±50%; read 64KB random; compute 50us; count scans }",
        ),
    ),
    Preset::new(
        "postmark",
        "PostMark: transactions of a mail server on files of 500 bytes to 9.77 KiB (its defaults; one \
         block of 4 to 12 KiB). Each pairs a read or an append with a creation or a deletion: 26 us of CPU for both, \
         counted in PostMark 1.51 on files in the page cache, on an Intel Xeon of 2023, of which 5 us \
         under the directory's inode lock (assumed). \
         Four at a time (vMigrater: concurrent requests). The configuration that its authors published \
         (apps/macro_benchmarks/bench10/config4postmark of github.com/hku-systems/vMigrater) is not \
         followed: one at a time, nine reads to an append, on 10,000 files of 1,000 to 24,000 bytes, which \
         stay in the page cache.",
        Shape::Alike(
            |_| 4,
            "postmark",
            "loop { read 8KB random; compute 13us ±50%; lock inode { compute 5us }; \
             write 8KB random; compute 8us ±50%; count 2 ops }",
        ),
    ),
    Preset::new(
        "clamav",
        "clamscan of many files: one thread reads and matches signatures at 20 MB/s (assumed; it is \
         why the papers call it compute-bound): 64 KiB in 3.1 ms. Signatures: a trie of hundreds of \
         MB, of which matching walks some 32 MiB (assumed).",
        Shape::Alike(
            |_| 1,
            "clamscan",
            "memory 32MB 20/us; loop { read 64KB; compute 3100us ±30%; count 64 KiB }",
        ),
    ),
    Preset::new(
        "rocksdb",
        "RocksDB, random keys, half reads, half writes (vSMT-IO), as db_bench does it in one process, \
         a thread per vCPU. A get is 5 us (assumed) and a block of 4 KiB (its default) from the disk; a \
         put goes into the log as its write group does (db/write_thread.cc: the first who comes leads and \
         writes the log for all who have come; the others look for it and yield, for 100 us if that \
         has mostly been enough and their vCPU has nobody else, before they block), 2 us (assumed: a `write` to the page cache), and into the memtable, side by side with \
         others (allow_concurrent_memtable_write, the default), 3 us (assumed); that a group is over only when \
         all of its memtable's insertions are is left out. \
         4096 puts of about 1 KiB fill 4 MiB, which compaction writes behind: it reads 4 MiB, merges \
         for 20 ms (assumed: 200 MB/s) and writes 4 MiB.",
        Shape::Own(|vcpus| vcpus.saturating_add(1), rocksdb),
    ),
    Preset::new(
        "terasort",
        "TeraSort on Hadoop, a task per vCPU: reads 1 MiB, parses and sorts it for 50 ms (assumed: \
         20 MB/s per core, the order of Hadoop's map tasks) in a buffer of 100 MB (io.sort.mb), spills it to the page cache, from where \
         it is written behind.",
        Shape::Own(|vcpus| vcpus.saturating_add(1), terasort),
    ),
    Preset::new(
        "pbzip2",
        "pbzip2: one thread reads blocks of 900 kB, a thread per vCPU compresses them, 90 ms each (as \
         `bzip2`), one writes the results, a quarter as long. Its queue holds as many blocks as there \
         are threads; here 8 (assumed).",
        Shape::Pipeline(&[
            Stage {
                name: "reader",
                many: false,
                does: "read 900KB",
                queue: 8,
            },
            Stage {
                name: "compress",
                many: true,
                does: "memory 4MB 12/us; compute 90ms ±20%",
                queue: 8,
            },
            Stage {
                name: "writer",
                many: false,
                does: "write 225KB; count blocks",
                queue: 1,
            },
        ]),
    ),
];

/// Datanodes' threads, each with its map task.
fn hdfs(threads: u32) -> Vec<(String, String)> {
    let pair = |i: u32| {
        let node =
            format!("queue packets{i} 4; loop {{ read 64KB; compute 30us ±20%; send packets{i} }}");
        let map = format!("loop {{ recv packets{i}; compute 100us ±20%; count 64 KiB }}");
        [(format!("datanode{i}"), node), (format!("map{i}"), map)]
    };
    (0..threads.div_ceil(2)).flat_map(pair).collect()
}

/// Threads of db_bench, and compaction.
fn rocksdb(threads: u32) -> Vec<(String, String)> {
    let users = threads.saturating_sub(1).max(1);
    let text = "memory 8MB 10/us; loop { \
         loop 4096 { compute 5us ±50%; read 4KB random; write-group writers 2us 100us; compute 3us; \
         count 2 ops }; send full }";
    let user = |i: u32| (format!("bench{i}"), text.to_string());
    let compaction = "queue full 4; loop { recv full; read 4MB; compute 20ms; write 4MB }";
    let mut all: Vec<_> = (0..users).map(user).collect();
    all.push(("compaction".to_string(), compaction.to_string()));
    all
}

/// Map tasks and the flusher.
fn terasort(threads: u32) -> Vec<(String, String)> {
    let text = "memory 100MB 15/us; \
         loop { read 1MB; compute 50ms ±20%; count MiB; send dirty }";
    let mut all = writing("map0", text, "1MB");
    let map = |i: u32| (format!("map{i}"), text.to_string());
    all.extend((1..threads.saturating_sub(1)).map(map));
    all
}
