// SPDX-License-Identifier: GPL-2.0-only
//! Servers whose clients run in the same VM.

use super::Preset;
use super::shapes::Shape;

pub(super) const ABOUT: &str = "Servers with their clients in the same VM, as vSMT-IO's published scripts \
    start them (github.com/vSMT-IO/vSMT-IO, a939127, apps/: 127.0.0.1 or a Unix socket). A client is a \
    thread, and the server has a thread for each (`threads` counts both); they wait for each other, and so \
    their vCPUs halt and wake each other, where clients of another machine only load the network. What a \
    client does between a reply and its next request is computing in the VM. CPU times per statement are \
    assumed, as in [databases](#databases), unless a text says \"counted\". Reads of data that the guest's memory holds (16 GB in the paper) \
    are part of these; a `read` is of what it does not, and goes to a device. A `write` is durable, and so is \
    an `append` to a database's log. All that read or write need a `[device]`.";

/// Of `threads` threads in pairs.
const fn pairs(threads: u32) -> u32 {
    if threads < 2 { 1 } else { threads / 2 }
}

const fn as_many(vcpus: u32) -> u32 {
    vcpus.saturating_mul(2)
}

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "sysbench-mysql",
        "MySQL and SysBench's OLTP, read-only (apps/mysql/sysbench2.sh: oltp, 1,000,000 rows, \
         --oltp-read-only=on, 32 threads): a transaction is 16 statements (BEGIN, 14 SELECTs, COMMIT) of \
         100 us each (assumed), 10 us of SysBench before each (assumed, as pgbench: --test=oltp with \
         --oltp-table-size is SysBench 0.4, in C; Lua came with 0.5). One page of \
         16 KiB (InnoDB's) is read: sysbench's `special` distribution takes a quarter of its rows from \
         all of the table, some 220 MB, of which InnoDB's 128 MB (its default) hold half.",
        Shape::Own(as_many, sysbench_mysql),
    ),
    Preset::new(
        "pgbench",
        "PostgreSQL and pgbench's TPC-B (apps/pgbench: 64 clients, `pgbench -i` without a scale, so that \
         there is one branch): BEGIN, UPDATE, SELECT, UPDATE, UPDATE of the branch, INSERT and END. The branch's row is \
         locked from its UPDATE to the \
         end of END, which appends 8 KiB to the log and waits until they are on the disk \
         (synchronous_commit, the default): one commit at a time. Counted in PostgreSQL 15, on one core of an Intel \
         Xeon of 2023: with one client 37 us of CPU a statement and 6.5 us of pgbench, and one wait for each; with 64 clients 0.42 ms a \
         transaction more, and 31 waits instead of 7. Those are for others' transactions (nine of ten servers at any \
         time, pg_stat_activity): who waits for a row does not wait in turn, but for the end of the transaction that has it \
         (heapam_tuple_lock(): XactLockTableWait() without the tuple's lock; EvalPlanQualFetch() before 12). So at each commit \
         all wake who wait for it, look, and, but for one, wait for the next: the branch's other waiters, one for each other teller (an \
         UPDATE comes before the branch's, and there are 10), and those who wait for the same teller; of 64 clients 9 and 6, \
         which makes 28 us each. One of these has the row next, the threads `waiter` stand for the others (`threads` \
         does not count them; the servers they stand for go on waiting meanwhile). 100,000 accounts are some 13 MB, which are in memory soon \
         after loop.sh's ./flush: no reads.",
        Shape::Own(as_many, pgbench),
    ),
    Preset::new(
        "ycsb-hbase",
        "HBase and YCSB, reads and updates by turns (apps/hadoop/run_hbash.sh: 32 threads). A read is 200 us \
         (assumed: Java), an update 100 us, and its log, one at a time, 30 us of a datanode, which keeps it \
         in memory (hflush). 100 us of YCSB before each (assumed: Java). 1,000,000 records of 1 KB (recordcount \
         of apps/mongodb/workloada, the only one that is published) are some 1.45 GB of ten cells each, of which a \
         block cache of 400 MB (hfile.block.cache.size, 0.4 of CDH 5's default heap of 1000 MB) has every \
         second block that YCSB's zipfian distribution asks for (reckoned: least recently used of blocks of 64 KiB, \
         48.6 %). The others come from a thread of the datanode in the same VM, as apps/hadoop/hbase-site.xml has it \
         (hdfs://localhost, no short-circuit reads), which has them in the guest's page cache: 30 us, and \
         100 us for their CRCs, as [hdfs](#hdfs). `threads` counts three for each of YCSB's.",
        Shape::Own(|vcpus| vcpus.saturating_mul(3), ycsb_hbase),
    ),
    Preset::new(
        "ycsb-mongodb",
        "MongoDB and YCSB (apps/mongodb: workloada with 60 % reads and 40 % scans, 16 threads). A read is \
         100 us, a scan of 1 to 1000 records (YCSB's default) 2 us for each: 1 ms; as much again of YCSB, \
         which unpacks them (assumed). 1,000,000 records of 1 KB (recordcount) are in WiredTiger's cache, which \
         is half of the memory by default: no reads.",
        Shape::Own(as_many, ycsb_mongodb),
    ),
    Preset::new(
        "ycsb-rocksdb",
        "RocksDB in YCSB's process (apps/ssdb/run_rocksdb.sh: 32 threads), half reads, half writes, as \
         [rocksdb](#rocksdb) with 20 us of YCSB before each (assumed: Java). 1,000,000 records of 1 KB (recordcount \
         of apps/mongodb/workloada, the only one that is published) are in the guest's page cache, not in RocksDB's \
         own of 8 MB: a read copies a block of 4 KiB, 1 us. (apps/ssdb has a loop for another reading of the paper's \
         \"serve requests\": SSDB's server and ssdb-bench. It is not modelled.) `threads` counts the one that compacts; its files \
         are on the disk before the log of what is in them goes.",
        Shape::Own(|vcpus| vcpus.saturating_add(1), ycsb_rocksdb),
    ),
    Preset::new(
        "clamd",
        "ClamAV's daemon scanning all files of a VM (apps/clamav: clamdscan -m /, MaxThreads 23): each \
         thread reads a file, of 64 KiB (assumed) and wherever it lies, and matches signatures as \
         [clamav](#clamav) does, 3.1 ms.",
        Shape::Alike(
            |vcpus| vcpus,
            "clamd",
            "memory 32MB 20/us; loop { read 64KB random; compute 3100us ±30%; count 64 KiB }",
        ),
    ),
    Preset::new(
        "dbt1-users",
        "DBT-1 with its users in the VM (apps/dbt1: 100 users that think for 20 ms instead of TPC-W's 7 s; \
         exponentially distributed, as TPC-W has it): users (dbdriver), application server (appServer) and \
         PostgreSQL. A page is 1 ms of the application and four queries of 250 us, as [dbt1](#dbt1), 50 us of the user's \
         (assumed). install.sh has 10,000 items, about 1 GB, in 16 GB of memory: no reads. \
         Two pages of 13 end in a commit, which appends 8 KiB to the log and waits until they are on the disk: \
         in TPC-W's shopping mix, its primary one (the scripts name none), 15.5 % change \
         something: the cart (11.6), customers (2.6 buy requests), orders (1.2), items (0.1). A thread of the application and a process of PostgreSQL's for each \
         user (assumed), so that `threads` counts three for each.",
        Shape::Own(|vcpus| vcpus.saturating_mul(12), dbt1_users),
    ),
    Preset::new(
        "wrk-nginx",
        "Nginx serving its welcome page to a client in the VM, on 127.0.0.1, as apps/nginx/run.sh starts \
         siege (the paper has ApacheBench, Table 3.4). The client here is wrk with the numbers of \
         apps/nginx/wrk.sh, 32 threads and 1000 connections for 24 vCPUs, so 42 for each; that script's \
         address, 192.168.122.1, is libvirt's of the host, so it asks a server outside the VM that runs it. A worker per vCPU (worker_processes auto), 8.7 us per \
         page and 4 us of wrk, the way through the loopback device included: counted in nginx 1.22 with 4 workers and \
         wrk with 2 threads and 84 connections, on an Intel Xeon of 2023. Both take from their connections whatever is there before they wait.",
        Shape::Own(as_many, wrk_nginx),
    ),
];

/// Pairs of a client's and a server's thread.
fn serving(
    threads: u32,
    client: impl Fn(u32) -> String,
    server: impl Fn(u32) -> String,
) -> Vec<(String, String)> {
    let pair = |i: u32| {
        let client = (format!("client{i}"), client(i));
        [client, (format!("server{i}"), server(i))]
    };
    (0..pairs(threads)).flat_map(pair).collect()
}

/// A client that asks again as soon as it has its answer and has computed for so long.
fn eager(i: u32, compute: &str) -> String {
    format!("loop {{ compute {compute}; send ask{i}; recv answer{i} }}")
}

fn sysbench_mysql(threads: u32) -> Vec<(String, String)> {
    let client = |i| eager(i, "10us ±50%");
    let server = |i| {
        let select = format!("recv ask{i}; compute 100us ±50%; send answer{i}");
        format!(
            "memory 32MB 10/us; loop {{ loop 15 {{ {select} }}; \
             recv ask{i}; compute 100us ±50%; read 16KB random; send answer{i}; \
             count transactions }}"
        )
    };
    serving(threads, client, server)
}

/// Tellers of pgbench's one branch.
const TELLERS: u32 = 10;

/// How many of so many clients wait for a transaction to end: those with other tellers for the
/// branch, and those with the same teller.
fn waiters(clients: u32) -> u32 {
    let tellers = clients.clamp(1, TELLERS);
    tellers - 1 + (clients - tellers).div_ceil(tellers)
}

fn pgbench(threads: u32) -> Vec<(String, String)> {
    const LOOK: &str = "compute 28us ±50%";
    let waiters = waiters(pairs(threads));
    // The client that gets the row next has waited for it, and checked.
    let (look, wakes) = match waiters {
        0 => (String::new(), ""),
        1 => (format!("{LOOK}; "), ""),
        _ => (format!("{LOOK}; "), "broadcast committed; "),
    };
    let client = |i| eager(i, "6500ns ±50%");
    let server = |i| {
        let statement = format!("recv ask{i}; compute 37us ±50%; send answer{i}");
        format!(
            "memory 32MB 10/us; loop {{ loop 4 {{ {statement} }}; \
             recv ask{i}; mutex branch {{ {look}compute 37us ±50%; send answer{i}; {statement}; \
             recv ask{i}; compute 37us ±50%; append wal 8KB }}; {wakes}send answer{i}; count transactions }}"
        )
    };
    let mut all = serving(threads, client, server);
    let waiter = |i: u32| {
        let text = format!("memory 32MB 10/us; loop {{ wait committed; {LOOK} }}");
        (format!("waiter{i}"), text)
    };
    all.extend((1..waiters).map(waiter));
    all
}

fn ycsb_hbase(threads: u32) -> Vec<(String, String)> {
    let server = |i| {
        let update = format!(
            "recv ask{i}; compute 100us ±50%; mutex wal {{ compute 30us }}; send answer{i}; \
             count operations"
        );
        let found = format!("recv ask{i}; compute 200us ±50%; send answer{i}; count operations");
        let fetched = format!(
            "recv ask{i}; compute 200us ±50%; send fetch{i}; recv block{i}; \
             compute 100us ±20%; send answer{i}; count operations"
        );
        format!("memory 16MB 10/us; loop {{ {found}; {update}; {fetched}; {update} }}")
    };
    let all = |i: u32| {
        let datanode = format!("loop {{ recv fetch{i}; compute 30us ±20%; send block{i} }}");
        let client = (format!("client{i}"), eager(i, "100us ±50%"));
        let server = (format!("server{i}"), server(i));
        [client, server, (format!("datanode{i}"), datanode)]
    };
    (0..(threads / 3).max(1)).flat_map(all).collect()
}

fn ycsb_mongodb(threads: u32) -> Vec<(String, String)> {
    let client = |i| {
        let (read, scan) = (eager_once(i, "100us ±50%"), eager_once(i, "1ms ±100%"));
        format!("memory 16MB 10/us; loop {{ loop 3 {{ {read} }}; loop 2 {{ {scan} }} }}")
    };
    let server = |i| {
        let does = |compute: &str| {
            format!("recv ask{i}; compute {compute}; send answer{i}; count operations")
        };
        let (read, scan) = (does("100us ±50%"), does("1ms ±100%"));
        format!("memory 16MB 10/us; loop {{ loop 3 {{ {read} }}; loop 2 {{ {scan} }} }}")
    };
    serving(threads, client, server)
}

/// A client that asks, and unpacks the answer for so long.
fn eager_once(i: u32, compute: &str) -> String {
    format!("send ask{i}; recv answer{i}; compute {compute}")
}

fn ycsb_rocksdb(threads: u32) -> Vec<(String, String)> {
    let users = threads.saturating_sub(1).max(1);
    let text = "memory 8MB 10/us; loop { \
         loop 4096 { compute 46us ±50%; \
         write-group writers 2us 100us; compute 3us; count 2 ops }; send full }";
    let user = |i: u32| (format!("client{i}"), text.to_string());
    let compaction = "queue full 4; loop { recv full; read 4MB; compute 20ms; write 4MB }";
    let mut all: Vec<_> = (0..users).map(user).collect();
    all.push(("compaction".to_string(), compaction.to_string()));
    all
}

fn dbt1_users(threads: u32) -> Vec<(String, String)> {
    let user =
        |i| format!("loop {{ sleep 20ms exp; compute 50us ±50%; send ask{i}; recv answer{i} }}");
    let application = |i| {
        format!(
            "memory 16MB 10/us; loop {{ recv ask{i}; compute 200us ±50%; \
             loop 4 {{ send query{i}; recv rows{i}; compute 200us ±50% }}; send answer{i}; count pages }}"
        )
    };
    // The queries of 6 and 7 pages; the last of each is the one that commits.
    let database = |i| {
        let query = format!("recv query{i}; compute 250us ±50%; send rows{i}");
        let commit = format!("recv query{i}; compute 250us ±50%; append wal 8KB; send rows{i}");
        format!(
            "memory 16MB 10/us; loop {{ loop 23 {{ {query} }}; {commit}; \
             loop 27 {{ {query} }}; {commit} }}"
        )
    };
    let all = |i: u32| {
        let user = (format!("user{i}"), user(i));
        let application = (format!("application{i}"), application(i));
        [user, application, (format!("database{i}"), database(i))]
    };
    (0..(threads / 3).max(1)).flat_map(all).collect()
}

/// Workers, and as many threads of wrk.
fn wrk_nginx(threads: u32) -> Vec<(String, String)> {
    let worker = "queue ask 100000; queue answer 100000; \
         loop { recv ask; compute 8700ns ±30%; send answer; count pages }";
    let wrk = "loop 42 { compute 1us; send ask }; loop { recv answer; compute 4us ±30%; send ask }";
    let pair = |i: u32| {
        let worker = (format!("worker{i}"), worker.to_string());
        [worker, (format!("wrk{i}"), wrk.to_string())]
    };
    (0..pairs(threads)).flat_map(pair).collect()
}
