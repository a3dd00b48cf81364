// SPDX-License-Identifier: GPL-2.0-only
//! Databases that clients on the network talk to.

use super::Preset;
use super::clients::PresetClient;
use super::shapes::Shape;
use corun_model::time::SEC;

pub(super) const ABOUT: &str = "Databases, their clients on another machine. A thread per connection \
    unless said otherwise; CPU times per statement are assumed, of the order that each server's own \
    benchmarks show for data in memory (10,000 simple statements per second and core are 100 us). \
    All but `redis` need a `[device]`.";

pub(super) const ALL: &[Preset] = &[
    Preset::new(
        "redis",
        "Redis, half SET, half GET of random keys (vSMT-IO). One thread; 3 us per command (assumed: the \
         program's own part of the 100,000 commands/s that redis-benchmark is known for; packets are \
         the guest kernel's). 50 connections that do not think (redis-benchmark's default).",
        Shape::Alike(
            |_| 1,
            "redis",
            "memory 64MB 5/us; loop { request redis; compute 3us ±30%; reply redis 16B; \
             count commands }",
        ),
    )
    .with(&[PresetClient::eager("redis", 50, 48)]),
    Preset::new(
        "hbase",
        "HBase, YCSB's reads and updates by turns (vSMT-IO): 30 handlers \
         (hbase.regionserver.handler.count). A read is 200 us (assumed: Java) and a block of 64 KiB \
         (HFile's default) from the disk; an update is 100 us and 4 KiB to the write-ahead log, one \
         at a time. Rows of 10 fields of 100 bytes (YCSB). 16 clients that do not think (assumed).",
        Shape::Alike(
            |_| 30,
            "handler",
            "memory 16MB 10/us; loop { \
             request rpc; compute 200us ±50%; read 64KB random; reply rpc 1KB; count operations; \
             request rpc; compute 100us ±50%; mutex wal { write 4KB }; reply rpc 64B; \
             count operations }",
        ),
    )
    .with(&[PresetClient::eager("rpc", 16, 1024)]),
    Preset::new(
        "mongodb",
        "MongoDB, sequential scans (vMigrater): cursors that fetch batches of 1 MiB, in reads of 64 KiB \
         with 50 us to unpack each (assumed: 1.3 GB/s). 4 clients that do not think (assumed).",
        Shape::Alike(
            |_| 4,
            "connection",
            "memory 16MB 10/us; loop { request wire; loop 16 { read 64KB; compute 50us ±20% }; \
             reply wire 1MB; count batches }",
        ),
    )
    .with(&[PresetClient::eager("wire", 4, 64)]),
    Preset::new(
        "mysql",
        "MySQL, SysBench's OLTP (vSMT-IO): a transaction is 20 statements, 14 of them reads and 4 \
         writes (oltp_read_write), of 100 us each; one page of 16 KiB (InnoDB's) is not in memory \
         (assumed), and the commit writes 4 KiB to the log, one at a time. 16 connections (assumed).",
        Shape::Alike(
            |_| 16,
            "connection",
            "memory 32MB 10/us; loop { \
             loop 10 { request sql; compute 100us ±50%; reply sql 256B }; \
             request sql; compute 100us ±50%; read 16KB random; reply sql 256B; \
             loop 8 { request sql; compute 100us ±50%; reply sql 256B }; \
             request sql; compute 50us; mutex log { write 4KB }; reply sql 64B; \
             count transactions }",
        ),
    )
    .with(&[PresetClient::eager("sql", 16, 128)]),
    Preset::new(
        "pgsql",
        "PostgreSQL, pgbench's TPC-B: a transaction is seven statements (BEGIN, UPDATE, SELECT, UPDATE, \
         UPDATE, INSERT, END), 60 us each; END writes a page of 8 KiB to the log, one at a time. 16 \
         connections (assumed); data in memory.",
        Shape::Alike(
            |_| 16,
            "backend",
            "memory 32MB 10/us; loop { \
             loop 6 { request pg; compute 60us ±50%; reply pg 128B }; \
             request pg; compute 30us; mutex wal { write 8KB }; reply pg 64B; count transactions }",
        ),
    )
    .with(&[PresetClient::eager("pg", 16, 128)]),
    Preset::new(
        "dbt1",
        "DBT-1, like TPC-W (vSMT-IO: many random accesses to a hard disk): a page is 2 ms of \
         application and database (assumed) and four random reads of 8 KiB (assumed). 100 browsers \
         that think 7 s (TPC-W: exponentially distributed, 7 to 8 s on average), 16 threads (assumed).",
        Shape::Alike(
            |_| 16,
            "server",
            "memory 16MB 10/us; loop { request web; compute 1ms ±50%; \
             loop 4 { read 8KB random; compute 250us ±50% }; reply web 8KB; count pages }",
        ),
    )
    .with(&[PresetClient::thinking("web", 100, 512, 7 * SEC)]),
];
