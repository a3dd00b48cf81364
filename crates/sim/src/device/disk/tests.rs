// SPDX-License-Identifier: GPL-2.0-only
//! Disks on their own: what can be computed by hand, and what holds for all of them.

use super::*;
use crate::rng::Rng;
use corun_model::time::{MS, SEC, US};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A disk and the events it asked for.
struct Bench {
    disk: Disk,
    now: Nanos,
    /// Time, and the place that is done; `None`: a look.
    events: BinaryHeap<Reverse<(Nanos, Option<u32>)>>,
    next_id: u32,
    /// Requests answered by the host's page cache: which, and how long each took.
    answered: Vec<(u32, Nanos)>,
}

impl Bench {
    fn new(params: &DiskParams, shares: &[Share]) -> Self {
        Self {
            disk: Disk::new(
                params,
                shares,
                Rng::of(1, "disk", 0),
                Rng::of(1, "page cache", 0),
            ),
            now: 0,
            events: BinaryHeap::new(),
            next_id: 0,
            answered: Vec::new(),
        }
    }

    fn keep(&mut self, wants: Vec<Want>) {
        for want in wants {
            match want {
                Want::Done { place, at } => self.events.push(Reverse((at, Some(place)))),
                Want::Look { at } => self.events.push(Reverse((at, None))),
                Want::Answered { request, at } => {
                    self.answered.push((request.id, at - request.arrived));
                }
            }
        }
    }

    fn submit(&mut self, owner: u32, start: u64, bytes: u64, write: bool) -> u32 {
        let (id, mut wants) = (self.next_id, Vec::new());
        self.next_id += 1;
        let request = Request {
            owner,
            id,
            start,
            bytes,
            write,
            arrived: 0,
        };
        self.disk.submit(self.now, request, &mut wants);
        self.keep(wants);
        id
    }

    /// The next completion, at or before `limit`; sets the time to that of the completion.
    fn until_done(&mut self, limit: Nanos) -> Option<Request> {
        while let Some(Reverse((at, place))) = self.events.peek().copied() {
            if at > limit {
                break;
            }
            self.events.pop();
            assert!(at >= self.now);
            self.now = at;
            let mut wants = Vec::new();
            let done = match place {
                Some(place) => self.disk.done(at, place, &mut wants),
                None => {
                    self.disk.look(at, &mut wants);
                    None
                }
            };
            self.keep(wants);
            if done.is_some() {
                return done;
            }
        }
        self.now = limit;
        None
    }

    fn finish(&mut self) -> Request {
        self.until_done(Nanos::MAX).unwrap()
    }
}

const SHARE: Share = Share {
    weight: 100,
    quota: None,
};

fn hdd(scheduler: SchedulerParams) -> DiskParams {
    DiskParams {
        scheduler,
        ..DiskParams::new(MediumParams::Hdd(HddParams::default()))
    }
}

fn ssd(scheduler: SchedulerParams) -> DiskParams {
    DiskParams {
        scheduler,
        ..DiskParams::new(MediumParams::Ssd(SsdParams::default()))
    }
}

fn anticipatory() -> SchedulerParams {
    SchedulerParams::Anticipatory(AnticipatoryParams::default())
}

#[test]
fn a_solid_disk_reaches_what_its_specification_says() {
    let mut bench = Bench::new(&ssd(SchedulerParams::None), &[SHARE]);
    bench.submit(0, 0, 4096, false);
    bench.finish();
    // 48 us and 4 KiB at 550 MB/s: the specification's 55 us.
    assert_eq!(bench.now, 55_448);
    let rate = |bytes: u64, depth: u32| {
        let mut bench = Bench::new(&ssd(SchedulerParams::None), &[SHARE]);
        (0..depth).for_each(|_| _ = bench.submit(0, 0, bytes, false));
        let mut count = 0;
        while bench.until_done(SEC).is_some() {
            count += 1;
            bench.submit(0, 0, bytes, false);
        }
        count
    };
    assert!((82_000..=84_000).contains(&rate(4096, 32)));
    let sequential = rate(1 << 17, 2) << 17;
    assert!((545_000_000..=550_000_000).contains(&sequential));
}

/// When these requests to an idle solid-state disk are done; given are bytes, and whether they
/// write.
fn solid(parallel: u32, requests: &[(u64, bool)]) -> Vec<Nanos> {
    let medium = MediumParams::Ssd(SsdParams {
        parallel,
        ..SsdParams::default()
    });
    let params = DiskParams {
        scheduler: SchedulerParams::None,
        ..DiskParams::new(medium)
    };
    let mut bench = Bench::new(&params, &[SHARE]);
    for &(bytes, write) in requests {
        bench.submit(0, 0, bytes, write);
    }
    let mut done = vec![0; requests.len()];
    while let Some(request) = bench.until_done(Nanos::MAX) {
        done[request.id as usize] = bench.now;
    }
    done
}

/// 4 KiB pass the link within 8 us, and reads have their data after 48 us: a write has passed it by then.
#[test]
fn a_write_passes_the_link_while_reads_look_for_their_data() {
    let alone = solid(4, &[(4096, true)])[0];
    assert_eq!(alone, 65_877);
    assert_eq!(solid(4, &[(4096, false), (4096, true)]), [55_448, alone]);
}

/// A mebibyte takes 2 ms on the link: the unit can read meanwhile, but what it has read waits for
/// the link.
#[test]
fn the_link_carries_one_way_at_a_time() {
    let write = solid(1, &[(1 << 20, true)])[0];
    let linked = write - 58 * US;
    let read = linked + ssd::transfer(4096, 550_000_000);
    assert_eq!(solid(1, &[(1 << 20, true), (4096, false)]), [write, read]);
}

#[test]
fn one_of_so_many_reads_goes_to_the_disk() {
    let params = DiskParams {
        page_cache: 4,
        ..ssd(SchedulerParams::None)
    };
    let mut bench = Bench::new(&params, &[SHARE]);
    let submit = |bench: &mut Bench| bench.submit(0, 0, 16 << 10, false);
    (0..4000).for_each(|_| _ = submit(&mut bench));
    let mut disk = 0;
    while bench.until_done(Nanos::MAX).is_some() {
        disk += 1;
    }
    assert_eq!(disk + bench.answered.len(), 4000);
    assert!((900..1100).contains(&disk), "{disk}");
    // 16 KiB at 10 GB/s.
    assert!(bench.answered.iter().all(|(_, took)| *took == 1_600));
    let totals = bench.disk.totals();
    let disk = disk as u64;
    assert_eq!(
        (totals.requests, totals.bytes),
        (disk, disk << 14),
        "the disk's own"
    );
}

/// A write waits until it is on the disk, whatever the host has in memory.
#[test]
fn no_write_ends_in_the_page_cache() {
    let params = DiskParams {
        page_cache: 1_000_000,
        ..ssd(SchedulerParams::None)
    };
    let mut bench = Bench::new(&params, &[SHARE]);
    (0..100).for_each(|_| _ = bench.submit(0, 0, 8 << 10, true));
    let mut disk = 0;
    while bench.until_done(Nanos::MAX).is_some() {
        disk += 1;
    }
    assert_eq!((disk, bench.answered.len()), (100, 0));
}

#[test]
fn seeks_average_what_the_data_sheet_says() {
    let params = HddParams::default();
    assert_eq!((params.seek(0), params.seek(params.capacity)), (0, 17 * MS));
    let mut rng = Rng::of(1, "seeks", 0);
    let mut place = || rng.between(0, params.capacity);
    let mean = (0..10_000)
        .map(|_| params.seek(place().abs_diff(place())))
        .sum::<Nanos>()
        / 10_000;
    assert!((8 * MS..=9 * MS).contains(&mean), "{mean}");
    let grows = (1..1000).map(|n| params.seek(n * 1_000_000_000));
    assert!(grows.is_sorted());
}

#[test]
fn a_hard_disk_streams_and_seeks() {
    let mut bench = Bench::new(&hdd(SchedulerParams::None), &[SHARE]);
    bench.submit(0, 0, 150_000, false);
    bench.finish();
    let first = bench.now;
    bench.submit(0, 150_000, 150_000, false);
    bench.finish();
    assert_eq!(bench.now - first, MS, "150 kB at 150 MB/s");
    assert_eq!(
        bench.disk.totals().seeks,
        1,
        "the first found the head elsewhere"
    );
    // A pause of 4 ms filled the buffer: 150 kB at 600 MB/s.
    bench.until_done(first + 5 * MS);
    bench.submit(0, 300_000, 150_000, false);
    bench.finish();
    assert_eq!(bench.now - first, 5 * MS + 250 * US);
    let before = bench.now;
    bench.submit(0, 500_000_000_000, 4096, false);
    bench.finish();
    let time = bench.now - before;
    let seek = HddParams::default().seek(500_000_000_000);
    assert!((seek..seek + 9 * MS).contains(&time), "{time}");
    assert_eq!(bench.disk.totals().seeks, 2);
}

#[test]
fn a_write_that_comes_late_waits_for_the_platter() {
    let mut bench = Bench::new(&hdd(SchedulerParams::None), &[SHARE]);
    bench.submit(0, 0, 150_000, true);
    bench.finish();
    assert_eq!(bench.now, MS);
    bench.until_done(2 * MS);
    bench.submit(0, 150_000, 150_000, true);
    bench.finish();
    let turn = HddParams::default().turn();
    assert_eq!(bench.now, 2 * MS + (turn - MS) + MS);
}

/// Two VMs read, each its next piece when it has the last one; VM 1 begins when VM 0 has read some.
/// Returns what each read in a second, in pieces of 128 KiB.
fn two_readers(params: &DiskParams, shares: [Share; 2], pause: Nanos) -> ([u64; 2], Totals) {
    const PIECE: u64 = 1 << 17;
    let mut bench = Bench::new(params, &shares);
    let mut at = [0, 100_000_000_000];
    let mut read = [0; 2];
    let mut due: Vec<(Nanos, usize)> = vec![(0, 0), (MS, 1)];
    while bench.now < SEC {
        due.sort_unstable();
        let next = due.first().map_or(SEC, |first| first.0);
        if let Some(done) = bench.until_done(next.min(SEC)) {
            let reader = done.owner as usize;
            read[reader] += 1;
            due.push((bench.now + pause, reader));
        } else if bench.now < SEC {
            let (_, reader) = due.remove(0);
            bench.submit(reader as u32, at[reader], PIECE, false);
            at[reader] += PIECE;
        }
    }
    bench.disk.settle(SEC);
    (read, bench.disk.totals())
}

#[test]
fn anticipation_saves_the_seeks_of_two_readers() {
    let shares = [SHARE; 2];
    let (fifo, moves) = two_readers(&hdd(SchedulerParams::None), shares, 100 * US);
    let (waits, few) = two_readers(&hdd(anticipatory()), shares, 100 * US);
    assert!(moves.seeks > 50 && few.seeks < 20, "{moves:?} {few:?}");
    let [fifo, waits] = [fifo, waits].map(|read| read.iter().sum::<u64>());
    assert!(
        waits > 5 * fifo,
        "{waits} with anticipation, {fifo} without"
    );
    assert!(few.held > 0 && moves.held == 0, "{few:?}");
}

#[test]
fn a_reader_that_thinks_for_long_is_waited_for_as_a_group_only() {
    let held = |group_idle, pause| {
        let params = AnticipatoryParams {
            group_idle,
            ..AnticipatoryParams::default()
        };
        let disk = hdd(SchedulerParams::Anticipatory(params));
        two_readers(&disk, [SHARE; 2], pause).1.held
    };
    // At first it is not known how long the VMs think.
    let unknown = held(0, 20 * MS);
    assert!(unknown < 100 * MS, "{unknown}");
    let group = held(8 * MS, 20 * MS);
    assert!(group > 150 * MS, "{group}");
    // With think times of 5 ms the scheduler waits, and it pays off.
    let short = held(0, 5 * MS);
    assert!(short > 500 * MS, "{short}");
}

#[test]
fn disk_time_goes_by_weight() {
    let shares = [300, 100].map(|weight| Share {
        weight,
        quota: None,
    });
    let (read, _) = two_readers(&hdd(anticipatory()), shares, 100 * US);
    let ratio = read[0] as f64 / read[1] as f64;
    assert!((2.0..=4.0).contains(&ratio), "{read:?}");
    let (read, _) = two_readers(&hdd(anticipatory()), [SHARE; 2], 100 * US);
    let ratio = read[0] as f64 / read[1] as f64;
    assert!((0.7..=1.4).contains(&ratio), "{read:?}");
}

#[test]
fn a_quota_holds() {
    let shares = [Some(10_000_000), None].map(|quota| Share { weight: 100, quota });
    let (read, _) = two_readers(&ssd(SchedulerParams::None), shares, 0);
    // 10 MB/s for a second and a tenth are 84 pieces, and one overfills the bucket.
    assert!((84..=85).contains(&read[0]), "{read:?}");
    assert!(read[1] > 1000, "{read:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every request is done once, in no less than the time the medium needs, and a disk with
    /// requests always has an event to wait for.
    #[test]
    fn nothing_is_lost(
        requests in prop::collection::vec(
            (0u64..20_000_000, 0u32..3, 0u64..1 << 39, 1u64..1 << 20, any::<bool>()), 1..60),
        kind in 0..6,
        quota in prop::option::of(1_000_000u64..1_000_000_000),
        idle in prop::sample::select(vec![0, MS, 8 * MS]),
    ) {
        let scheduler = match kind % 3 {
            0 => SchedulerParams::None,
            1 => SchedulerParams::Deadline(DeadlineParams::default()),
            _ => SchedulerParams::Anticipatory(AnticipatoryParams {
                slice_idle: idle,
                ..AnticipatoryParams::default()
            }),
        };
        let params = if kind < 3 { ssd(scheduler) } else { hdd(scheduler) };
        let shares = [SHARE, Share { weight: 7, quota }, SHARE];
        let mut bench = Bench::new(&params, &shares);
        let (mut open, mut done) = (vec![false; requests.len()], 0);
        let finished = |done: Option<Request>, open: &mut Vec<bool>| {
            done.is_some_and(|request| std::mem::take(&mut open[request.id as usize]))
        };
        for (gap, owner, start, bytes, write) in &requests {
            let limit = bench.now + gap;
            while bench.now < limit {
                done += usize::from(finished(bench.until_done(limit), &mut open));
            }
            let id = bench.submit(*owner, *start, *bytes, *write);
            open[id as usize] = true;
        }
        while let Some(request) = bench.until_done(Nanos::MAX / 2) {
            done += usize::from(finished(Some(request), &mut open));
        }
        prop_assert_eq!(done, requests.len());
        let bytes: u64 = requests.iter().map(|request| request.3).sum();
        let totals = bench.disk.totals();
        prop_assert_eq!((totals.requests, totals.bytes), (requests.len() as u64, bytes));
        prop_assert!(totals.busy >= ssd::transfer(bytes, 600_000_000));
    }
}
