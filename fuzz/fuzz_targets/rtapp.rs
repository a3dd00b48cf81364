// SPDX-License-Identifier: GPL-2.0-only
//! rt-app files: what is refused is refused at a place, and every program made of the rest is one
//! that the workload language accepts.

#![no_main]

use corun_sim::workload::Program;
use corun_sim::workload::rtapp::{convert, event_names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let ignored = event_names().filter(|name| *name != "run");
    let ignored: Vec<String> = ignored.map(String::from).collect();
    for ignore in [&[], ignored.as_slice()] {
        match convert(data, 2, ignore) {
            // Of thousands of threads alike, a few are enough.
            Ok(converted) => converted.threads.iter().take(8).for_each(|thread| {
                let printed = thread.program.to_string();
                let again = Program::parse(&printed);
                assert_eq!(again.as_ref(), Ok(&thread.program), "{printed}");
            }),
            Err(faults) => {
                assert!(!faults.is_empty());
                for fault in faults {
                    assert!(fault.line >= 1 && fault.column >= 1 && !fault.message.is_empty());
                }
            }
        }
    }
});
