// SPDX-License-Identifier: GPL-2.0-only
//! Does the dispatcher fit into what Linux 6.12's verifier allows: 8 functions that call each other, and 512 bytes of
//! stack for all of them together? Newer verifiers allow more, so no other test would show it
//! (`check_max_stack_depth_subprog()` in kernel/bpf/verifier.c of Linux 6.12).

use crate::skel::UNTAPPED;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};
use std::collections::{BTreeMap, BTreeSet};

const INSTRUCTION: usize = 8;
/// `MAX_CALL_FRAMES`.
const FRAMES: usize = 8;
/// `MAX_BPF_STACK`, bytes.
const STACK: u64 = 512;
/// Frames of compiled programs are rounded up to this many bytes.
const ROUND: u64 = 16;
/// The register that points at the end of the frame.
const FRAME_POINTER: u8 = 10;

/// Where a function begins: its section, and the number of its first instruction there.
type Place = (usize, usize);

/// A function as the verifier sees it.
#[derive(Default)]
struct Function {
    name: String,
    /// Bytes of its frame.
    frame: u64,
    calls: BTreeSet<Place>,
}

#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    into: u8,
    from: u8,
    offset: i16,
    imm: i32,
}

impl Instruction {
    fn new(bytes: &[u8]) -> Self {
        Self {
            code: bytes[0],
            into: bytes[1] & 15,
            from: bytes[1] >> 4,
            offset: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// A call of a function of the program (`BPF_PSEUDO_CALL`).
    fn calls(self) -> bool {
        self.code == 0x85 && self.from == 1
    }

    /// How deep it reaches into the frame; `pointers`: registers that hold the frame pointer.
    fn reaches(self, pointers: &mut BTreeSet<u8>) -> u64 {
        let base = match self.code & 7 {
            1 => self.from,
            2 | 3 => self.into,
            _ => {
                let copied = self.code == 0xbf && self.from == FRAME_POINTER;
                let moved = self.code == 0x07 && pointers.contains(&self.into);
                if copied {
                    pointers.insert(self.into);
                } else {
                    pointers.remove(&self.into);
                }
                return if moved { below(self.imm) } else { 0 };
            }
        };
        if self.code & 7 == 1 {
            pointers.remove(&self.into);
        }
        if base == FRAME_POINTER {
            below(self.offset.into())
        } else {
            0
        }
    }
}

fn below(offset: i32) -> u64 {
    u64::from(offset.min(0).unsigned_abs())
}

fn functions(elf: &object::File<'_>) -> BTreeMap<Place, Function> {
    let mut found = BTreeMap::new();
    for symbol in elf.symbols().filter(|it| it.kind() == SymbolKind::Text) {
        let Some(section) = symbol.section_index() else {
            continue; // the kernel's
        };
        let begin = symbol.address() as usize / INSTRUCTION;
        let end = begin + symbol.size() as usize / INSTRUCTION;
        let mut function = Function {
            name: symbol.name().unwrap().to_string(),
            ..Function::default()
        };
        let code = elf.section_by_index(section).unwrap();
        let relocated: BTreeMap<u64, RelocationTarget> = code
            .relocations()
            .map(|(at, relocation)| (at, relocation.target()))
            .collect();
        let data = code.data().unwrap();
        let mut pointers = BTreeSet::new();
        for at in begin..end {
            let bytes = &data[at * INSTRUCTION..(at + 1) * INSTRUCTION];
            let instruction = Instruction::new(bytes);
            function.frame = function.frame.max(instruction.reaches(&mut pointers));
            if instruction.calls() {
                let target = relocated.get(&((at * INSTRUCTION) as u64)).copied();
                function
                    .calls
                    .extend(called(elf, target, section, at, instruction.imm));
            }
        }
        found.insert((section.0, begin), function);
    }
    found
}

/// Which function an instruction calls; `None`: one of the kernel's.
fn called(
    elf: &object::File<'_>,
    target: Option<RelocationTarget>,
    section: SectionIndex,
    at: usize,
    imm: i32,
) -> Option<Place> {
    let Some(RelocationTarget::Symbol(symbol)) = target else {
        return Some((section.0, (at as i64 + i64::from(imm) + 1) as usize));
    };
    let symbol = elf.symbol_by_index(symbol).unwrap();
    let begin = match symbol.kind() {
        SymbolKind::Section => (i64::from(imm) + 1) as usize,
        _ => symbol.address() as usize / INSTRUCTION,
    };
    Some((symbol.section_index()?.0, begin))
}

/// The costliest way down from `from`: the sum of `cost`, and by which functions.
fn deepest(
    functions: &BTreeMap<Place, Function>,
    from: Place,
    cost: &dyn Fn(&Function) -> u64,
) -> (u64, Vec<String>) {
    let function = &functions[&from];
    let below = function
        .calls
        .iter()
        .map(|to| deepest(functions, *to, cost))
        .max()
        .unwrap_or_default();
    let mut way = vec![function.name.clone()];
    way.extend(below.1);
    (cost(function) + below.0, way)
}

#[test]
fn the_dispatcher_fits_into_the_oldest_verifier() {
    let elf = object::File::parse(&UNTAPPED.0).unwrap();
    let functions = functions(&elf);
    assert!(functions.len() > 50, "{}", functions.len());
    let frame = |function: &Function| function.frame.max(1).next_multiple_of(ROUND);
    let deepest_of = |cost: &dyn Fn(&Function) -> u64| {
        let ways = functions.keys().map(|at| deepest(&functions, *at, cost));
        ways.max().unwrap()
    };
    let (frames, way) = deepest_of(&|_| 1);
    assert!((6..=FRAMES as u64).contains(&frames), "{frames}: {way:?}");
    let (stack, way) = deepest_of(&frame);
    assert!((256..=STACK).contains(&stack), "{stack}: {way:?}");
}
