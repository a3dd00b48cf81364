// SPDX-License-Identifier: GPL-2.0-only
//! vTRS, the vCPU type recognition system (AQL_Sched, EuroSys 2016, §3.3).
//!
//! At the end of each monitoring period every vCPU gets five cursors, percent, that say how near it
//! is to each type (Eq. 1 to 5); its type is the one whose mean over the last four periods is highest. Our reading of
//! what the paper leaves open: equal means are decided by the order of [`Kind`]; a vCPU keeps its type until another
//! has won twice in a row; a period in which the vCPU had no pCPU says nothing about it and is passed over; where
//! nothing counts cache misses, a vCPU that is less than half I/O or spinning is [`Kind::Unknown`]; and one that hardly
//! refers to the last-level cache in a period is wholly LoLCF, whatever part of these few references missed.
//!
//! Cursors are integers, hundredths of a percent.

use super::kind::{Kind, Type};
use corun_model::{LlcSeen, Nanos, Parameter, Signals, Value};

/// The monitoring period (§3.3.1), ns.
pub const PERIOD: Nanos = 30 * corun_model::time::MS;
/// Periods that a decision looks back (§3.3.1: "setting n to 4 is acceptable").
pub const WINDOW: usize = 4;
/// A cursor of 100 %.
pub const FULL: u32 = 10_000;
/// With fewer references to the last-level cache in a period, it is chance how many of them miss: the vCPU may have run
/// for a moment only, and found its data gone. Nor can it make use of that cache: so many lines are 640 kB. Assumed.
const FEW_REFERENCES: u64 = 10_000;
/// How often another type must win in a row before it holds. Our reading: each change moves vCPUs.
const WINS: u32 = 2;

/// The numbers of recognition that cannot be set.
pub fn constants() -> Vec<Parameter> {
    let number = |value: u64, unit| Value::Number(value as f64, unit);
    vec![
        Parameter::fixed(
            "corun_policies::aql::vtrs::PERIOD",
            "how often vTRS looks at vCPUs",
            Value::Time(PERIOD),
            "AQL_Sched, §3.3.1",
        ),
        Parameter::fixed(
            "corun_policies::aql::vtrs::WINDOW",
            "a type is the one whose cursors' mean over so many periods is highest",
            number(WINDOW as u64, "periods"),
            "AQL_Sched, §3.3.1: \"setting n to 4 is acceptable\"",
        ),
        Parameter::fixed(
            "corun_policies::aql::vtrs::FEW_REFERENCES",
            "a vCPU that refers to the last-level cache less often in a period is wholly LoLCF",
            number(FEW_REFERENCES, "references"),
            "assumed: which part of so few misses is chance, and so many lines are 640 kB",
        ),
        Parameter::fixed(
            "corun_policies::aql::vtrs::WINS",
            "how often another type must win in a row before it holds",
            number(u64::from(WINS), "periods"),
            "assumed: each change moves vCPUs; the paper has none",
        ),
    ]
}

/// The limits between the types; the paper gives no values. See [`super::calibration`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O events of a vCPU in a period, from which on it is wholly IOInt; at least 1.
    pub io_events: u64,
    /// Pause-loop exits of a VM in a period, from which on its vCPUs are wholly ConSpin; at least 1.
    pub pause_exits: u64,
    /// References to the last-level cache per million instructions, from which on a vCPU is no
    /// LoLCF; at least 1.
    pub llc_references: u64,
    /// Misses per million references, from which on it is no LLCF; at least 1.
    pub llc_misses: u64,
}

/// The cursors of a period: the paper's five, and one for what is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursors {
    /// IOInt.
    pub io_int: u32,
    /// ConSpin.
    pub con_spin: u32,
    /// LoLCF.
    pub lo_lcf: u32,
    /// LLCF.
    pub llcf: u32,
    /// LLCO.
    pub llco: u32,
    /// What the last three share out where misses are not counted.
    pub unknown: u32,
}

/// `FULL` times `part` / `whole`, at most `FULL`.
fn share(part: u64, whole: u64) -> u32 {
    let part = u128::from(part.min(whole));
    (part * u128::from(FULL) / u128::from(whole.max(1))) as u32
}

/// `count` per million of `of`.
fn per_million(count: u64, of: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000 / u128::from(of.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// How far a level stays below its limit (Eq. 3 and the second half of Eq. 4).
fn below(level: u64, limit: u64) -> u32 {
    share(limit.saturating_sub(level), limit)
}

impl Cursors {
    /// Eq. 1 to 5, for a vCPU with these signals, in a VM with this many pause-loop exits.
    pub fn of(seen: &Signals, vm_exits: Option<u64>, limits: &Limits) -> Self {
        let io_int = share(seen.io_events.unwrap_or(0), limits.io_events);
        let con_spin = share(vm_exits.unwrap_or(0), limits.pause_exits);
        let Some(llc) = seen.llc else {
            return Self {
                io_int,
                con_spin,
                unknown: FULL - io_int.max(con_spin),
                ..Self::default()
            };
        };
        let [lo_lcf, llcf, llco] = cpu_burn(&llc, limits);
        Self {
            io_int,
            con_spin,
            lo_lcf,
            llcf,
            llco,
            unknown: 0,
        }
    }

    /// The cursor of a type.
    pub fn get(&self, kind: Kind) -> u32 {
        match kind {
            Kind::IoInt => self.io_int,
            Kind::ConSpin => self.con_spin,
            Kind::Llcf => self.llcf,
            Kind::Llco => self.llco,
            Kind::LoLcf => self.lo_lcf,
            Kind::Unknown => self.unknown,
        }
    }

    /// The type with the highest cursor.
    pub fn highest(&self) -> Kind {
        let mut best = Kind::IoInt;
        for kind in [
            Kind::ConSpin,
            Kind::Llcf,
            Kind::Llco,
            Kind::LoLcf,
            Kind::Unknown,
        ] {
            if self.get(kind) > self.get(best) {
                best = kind;
            }
        }
        best
    }
}

/// LoLCF, LLCF and LLCO, which are 100 together.
fn cpu_burn(llc: &LlcSeen, limits: &Limits) -> [u32; 3] {
    if llc.references < FEW_REFERENCES {
        return [FULL, 0, 0];
    }
    let references = per_million(llc.references, llc.instructions);
    let misses = per_million(llc.misses, llc.references);
    let lo_lcf = below(references, limits.llc_references);
    let llcf = below(misses, limits.llc_misses).min(FULL - lo_lcf);
    [lo_lcf, llcf, FULL - lo_lcf - llcf]
}

/// What is remembered of a vCPU.
#[derive(Clone, Debug)]
pub struct Recognition {
    /// The last periods' cursors, a ring.
    samples: [Cursors; WINDOW],
    /// Periods so far.
    seen: usize,
    decided: Option<Type>,
    /// Another type that has won, and how often in a row.
    rival: (Type, u32),
}

impl Default for Recognition {
    fn default() -> Self {
        Self {
            samples: [Cursors::default(); WINDOW],
            seen: 0,
            decided: None,
            rival: (Type::UNKNOWN, 0),
        }
    }
}

impl Recognition {
    /// A period in which the vCPU ran is over.
    pub fn sample(&mut self, cursors: Cursors) {
        self.samples[self.seen % WINDOW] = cursors;
        self.seen += 1;
        if self.seen < WINDOW {
            return;
        }
        let means = self.means();
        let kind = means.highest();
        let spins_or_waits = matches!(kind, Kind::IoInt | Kind::ConSpin);
        let won = Type {
            kind,
            plus: spins_or_waits && means.llco > FULL / 2,
        };
        let held = self.decided.unwrap_or(won);
        // For another kind only the kind counts, with or without a plus; for the same kind, the plus.
        let rival = self.rival.0;
        let again = rival.kind == won.kind && (won.kind != held.kind || rival.plus == won.plus);
        let wins = if again { self.rival.1 + 1 } else { 1 };
        let of = if wins >= WINS { won } else { held };
        self.rival = if of == won { (won, 0) } else { (won, wins) };
        self.decided = Some(of);
    }

    /// The cursors' means over the window; 0 before the first period.
    pub fn means(&self) -> Cursors {
        let count = self.seen.clamp(1, WINDOW) as u32;
        let mean = |of: fn(&Cursors) -> u32| self.samples.iter().map(of).sum::<u32>() / count;
        Cursors {
            io_int: mean(|c| c.io_int),
            con_spin: mean(|c| c.con_spin),
            lo_lcf: mean(|c| c.lo_lcf),
            llcf: mean(|c| c.llcf),
            llco: mean(|c| c.llco),
            unknown: mean(|c| c.unknown),
        }
    }

    /// The vCPU's type; unknown until the first window is full.
    pub fn decided(&self) -> Type {
        self.decided.unwrap_or(Type::UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        io_events: 30,
        pause_exits: 30,
        llc_references: 10_000,
        llc_misses: 500_000,
    };

    fn seen(io: u64, references: u64, misses: u64) -> Signals {
        Signals {
            io_events: Some(io),
            pause_exits: Some(0),
            llc: Some(LlcSeen {
                instructions: 100_000_000,
                references: 100 * references,
                misses: 100 * misses,
            }),
            ..Signals::default()
        }
    }

    fn cursors(io: u64, exits: u64, references: u64, misses: u64) -> Cursors {
        Cursors::of(&seen(io, references, misses), Some(exits), &LIMITS)
    }

    #[test]
    fn equation_1() {
        assert_eq!(cursors(0, 15, 0, 0).con_spin, FULL / 2);
        assert_eq!(cursors(6, 0, 0, 0).io_int, FULL / 5);
        assert_eq!(cursors(31, 999, 0, 0).io_int, FULL);
        assert_eq!(cursors(31, 999, 0, 0).con_spin, FULL);
    }

    #[test]
    fn equations_3_to_5() {
        let at = |references, misses| {
            let c = cursors(0, 0, references, misses);
            [c.lo_lcf, c.llcf, c.llco]
        };
        assert_eq!(at(0, 0), [FULL, 0, 0]);
        assert_eq!(at(2_500, 0), [7_500, 2_500, 0], "at most what LoLCF leaves");
        assert_eq!(at(20_000, 0), [0, FULL, 0]);
        assert_eq!(at(20_000, 5_000), [0, 5_000, 5_000], "a quarter misses");
        assert_eq!(at(20_000, 10_000), [0, 0, FULL]);
        assert_eq!(at(5_000, 5_000), [5_000, 0, 5_000]);
    }

    #[test]
    fn of_few_references_it_says_nothing_how_many_miss() {
        let cursors = |references: u64| {
            let mut seen = seen(60, 0, 0);
            seen.llc = Some(LlcSeen {
                instructions: 100_000,
                references,
                misses: references,
            });
            Cursors::of(&seen, None, &LIMITS)
        };
        let (few, enough) = (cursors(9_999), cursors(10_000));
        assert_eq!((few.lo_lcf, few.llco), (FULL, 0));
        assert_eq!((enough.lo_lcf, enough.llco), (0, FULL));
        assert_eq!(few.highest(), Kind::IoInt, "as before");
    }

    #[test]
    fn ties_go_to_what_a_wrong_slice_hurts_most() {
        assert_eq!(cursors(30, 30, 0, 0).highest(), Kind::IoInt);
        assert_eq!(cursors(0, 30, 0, 0).highest(), Kind::ConSpin);
        assert_eq!(cursors(0, 0, 20_000, 5_000).highest(), Kind::Llcf);
        assert_eq!(cursors(0, 0, 5_000, 5_000).highest(), Kind::Llco);
        assert_eq!(cursors(0, 0, 0, 0).highest(), Kind::LoLcf);
    }

    #[test]
    fn without_counters_the_rest_is_unknown() {
        let blind = |io| Signals {
            io_events: Some(io),
            ..Signals::default()
        };
        let of = |io| Cursors::of(&blind(io), None, &LIMITS).highest();
        assert_eq!(
            (of(0), of(14), of(15)),
            (Kind::Unknown, Kind::Unknown, Kind::IoInt)
        );
        let nothing = Cursors::of(&Signals::default(), None, &LIMITS);
        assert_eq!(nothing.highest(), Kind::Unknown);
    }

    #[test]
    fn four_periods_decide() {
        let mut vcpu = Recognition::default();
        for _ in 0..WINDOW - 1 {
            vcpu.sample(cursors(30, 0, 20_000, 20_000));
            assert_eq!(vcpu.decided(), Type::UNKNOWN);
        }
        vcpu.sample(cursors(30, 0, 20_000, 20_000));
        let decided = vcpu.decided();
        assert_eq!((decided.kind, decided.plus), (Kind::IoInt, true), "IOInt+");
        assert!(decided.trashes());
    }

    #[test]
    fn a_type_changes_when_another_wins_twice() {
        let mut vcpu = Recognition::default();
        (0..8).for_each(|_| vcpu.sample(cursors(0, 0, 20_000, 0)));
        assert_eq!(vcpu.decided().kind, Kind::Llcf);
        // One period of another kind does not outweigh three.
        vcpu.sample(cursors(30, 0, 20_000, 0));
        assert_eq!(vcpu.decided().kind, Kind::Llcf);
        let mut changed = Vec::new();
        for _ in 0..5 {
            vcpu.sample(cursors(30, 0, 0, 0));
            changed.push(vcpu.decided().kind);
        }
        // It wins from the second of these on, and holds when it has won twice.
        let expected = [
            Kind::Llcf,
            Kind::Llcf,
            Kind::IoInt,
            Kind::IoInt,
            Kind::IoInt,
        ];
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_type_that_wins_now_and_then_never_holds() {
        let mut vcpu = Recognition::default();
        (0..WINDOW).for_each(|_| vcpu.sample(cursors(0, 0, 0, 0)));
        // One period in four is another's.
        for _ in 0..20 {
            vcpu.sample(cursors(0, 0, 20_000, 0));
            vcpu.sample(cursors(0, 0, 0, 0));
            vcpu.sample(cursors(0, 0, 0, 0));
            vcpu.sample(cursors(0, 0, 0, 0));
            assert_eq!(vcpu.decided().kind, Kind::LoLcf);
        }
    }

    /// If a vCPU trashes the cache and does not by turns, it stays what it was: that decides on which socket it is put.
    #[test]
    fn a_plus_that_comes_and_goes_never_holds() {
        let mut vcpu = Recognition::default();
        let sample = |vcpu: &mut Recognition, misses| {
            vcpu.sample(cursors(30, 0, 20_000, misses));
            vcpu.decided()
        };
        for _ in 0..WINDOW {
            sample(&mut vcpu, 4_600);
        }
        let plain = vcpu.decided();
        assert_eq!((plain.kind, plain.plus), (Kind::IoInt, false));
        // One of four is enough for the mean, and the next one takes it away again.
        for _ in 0..10 {
            assert_eq!(sample(&mut vcpu, 7_000), plain);
            assert_eq!(sample(&mut vcpu, 2_000), plain);
            for _ in 0..WINDOW {
                sample(&mut vcpu, 4_600);
            }
            assert_eq!(vcpu.decided(), plain);
        }
        let kinds: Vec<bool> = (0..4).map(|_| sample(&mut vcpu, 7_000).plus).collect();
        assert_eq!(kinds, [false, true, true, true], "it has won twice");
    }

    /// Whether it trashes the cache changes all the time: that does not keep a new kind from being adopted.
    #[test]
    fn a_kind_holds_whatever_its_plus_does() {
        let mut vcpu = Recognition::default();
        (0..WINDOW).for_each(|_| vcpu.sample(cursors(0, 0, 0, 0)));
        let mut pluses = Vec::new();
        for period in 0..12 {
            let misses = if period % 2 == 0 { 20_000 } else { 0 };
            vcpu.sample(cursors(30, 0, 20_000, misses));
            let decided = vcpu.decided();
            assert_eq!(decided.kind == Kind::IoInt, period >= 2, "{period}");
            pluses.push(decided.plus);
        }
        // The mean is two of four from the fourth on, which is not above a half.
        assert_eq!(pluses[6..], [false; 6]);
    }

    proptest! {
        #[test]
        fn equation_2_holds_for_all_inputs(
            instructions in any::<u64>(), references in any::<u64>(), misses in any::<u64>(),
            io in any::<u64>(), exits in any::<u64>(),
            limits in prop::array::uniform4(1u64..=u64::MAX),
        ) {
            let limits = Limits {
                io_events: limits[0],
                pause_exits: limits[1],
                llc_references: limits[2],
                llc_misses: limits[3],
            };
            let llc = LlcSeen { instructions, references, misses };
            let seen = Signals { io_events: Some(io), llc: Some(llc), ..Signals::default() };
            let c = Cursors::of(&seen, Some(exits), &limits);
            prop_assert_eq!(c.lo_lcf + c.llcf + c.llco, FULL);
            prop_assert!(c.io_int <= FULL && c.con_spin <= FULL);
            prop_assert_eq!(c.io_int == FULL, io >= limits.io_events);
        }

        /// Whatever comes, the type is one that has won, and equal windows give equal types.
        #[test]
        fn a_steady_vcpu_gets_and_keeps_its_type(
            before in prop::collection::vec((0u64..60, 0u64..60, 0u64..30_000), 0..12),
            io in 0u64..60, exits in 0u64..60, references in 0u64..30_000,
        ) {
            let mut vcpu = Recognition::default();
            for (io, exits, references) in before {
                vcpu.sample(cursors(io, exits, references, references / 3));
            }
            let steady = cursors(io, exits, references, references / 3);
            (0..WINDOW + 1).for_each(|_| vcpu.sample(steady));
            for _ in 0..3 {
                let (decided, highest) = (vcpu.decided(), steady.highest());
                let may_trash = matches!(highest, Kind::IoInt | Kind::ConSpin);
                prop_assert_eq!(decided.kind, highest);
                prop_assert_eq!(decided.plus, may_trash && steady.llco > FULL / 2);
                vcpu.sample(steady);
            }
        }
    }
}
