// SPDX-License-Identifier: GPL-2.0-only
//! Files that are not the text of a recording, recognised by how they begin, and the command that
//! helps.

/// What a foreign file is and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub what: &'static str,
    pub remedy: &'static str,
}

const EXPORT: &str = "export ftrace, trace-cmd or perf text instead";

/// Beginnings that no text recording has.
const MAGIC: [(&[u8], &str, &str); 13] = [
    (
        b"\x17\x08\x44tracing",
        "a trace-cmd data file (trace.dat)",
        "convert it with `trace-cmd report -i FILE > recording.txt`",
    ),
    (
        b"PERFILE2",
        "a perf data file (perf.data)",
        "convert it with `perf script -i FILE > recording.txt`",
    ),
    (
        b"2ELIFREP",
        "a perf data file (perf.data) of the other byte order",
        "convert it with `perf script -i FILE > recording.txt`",
    ),
    (
        b"CORUNLK1",
        "a lockstep recording (of `corun host --record`)",
        "`corun lockstep FILE` replays it; expected here is what `corun record` makes",
    ),
    (b"\x7fELF", "an ELF program or library", "give a recording"),
    (
        b"\x28\xb5\x2f\xfd",
        "zstd-compressed",
        "unpack it with `zstd -d FILE`",
    ),
    (
        b"\xfd7zXZ\0",
        "xz-compressed",
        "unpack it with `xz -d FILE`",
    ),
    (b"BZh", "bzip2-compressed", "unpack it with `bzip2 -d FILE`"),
    (
        b"PK\x03\x04",
        "a zip archive",
        "unpack it with `unzip FILE`",
    ),
    (
        b"\xff\xfe",
        "UTF-16 text",
        "convert it with `iconv -f UTF-16 -t UTF-8 FILE > recording.txt`",
    ),
    (
        b"\xfe\xff",
        "UTF-16 text",
        "convert it with `iconv -f UTF-16 -t UTF-8 FILE > recording.txt`",
    ),
    (
        b"<",
        "HTML or XML (a systrace page?)",
        "save the trace itself as text, or convert with `traceconv systrace`",
    ),
    (
        b"\x1f\x8b",
        "gzip within gzip",
        "unpack it once with `gzip -d FILE`",
    ),
];

/// Is the first line an event? Tasks may be called `[x]` and `<x>`.
fn is_event(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next();
    let line = line.and_then(|line| str::from_utf8(line).ok());
    line.is_some_and(|line| super::head(line).is_ok())
}

/// Recognises a foreign file by its first bytes.
pub(crate) fn recognise(head: &[u8]) -> Option<Foreign> {
    if is_event(head) {
        return None;
    }
    let foreign = |what, remedy| Some(Foreign { what, remedy });
    for (magic, what, remedy) in MAGIC {
        if head.starts_with(magic) {
            return foreign(what, remedy);
        }
    }
    let first = head.iter().find(|b| !b.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) {
        return foreign("JSON", EXPORT);
    }
    if head.starts_with(b"070701") {
        return foreign("a cpio archive", "unpack it first");
    }
    if head.contains(&0) {
        return foreign(
            "binary",
            "if it is a trace of another program, export the kernel's events as text",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named_with_its_remedy() {
        let what = |head: &[u8]| recognise(head).map(|f| (f.what, f.remedy));
        let (name, remedy) = what(b"\x17\x08\x44tracing6\0").unwrap();
        assert!(name.contains("trace.dat") && remedy.contains("trace-cmd report"));
        let (name, remedy) = what(b"PERFILE2\x68").unwrap();
        assert!(name.contains("perf.data") && remedy.contains("perf script"));
        let (name, remedy) = what(b"CORUNLK1\x01\0\0\0").unwrap();
        assert!(name.contains("lockstep") && remedy.contains("corun lockstep FILE"));
        assert!(what(b"\x7fELF\x02").unwrap().0.contains("ELF"));
        assert!(what(b"\n {\"a\": 1}").unwrap().0.contains("JSON"));
        assert!(what(b"\x0a\x05\0\0").unwrap().0.contains("binary"));
    }

    #[test]
    fn text_is_not_foreign() {
        for text in [
            "",
            "# tracer: nop\n",
            "cpus=2\n",
            "  init-1 [000] 1.0: a: b\n",
            " [init]-1 [000] 1.0: a: b\n",
            "<init>-1 [000] 1.0: a: b\n",
        ] {
            assert_eq!(recognise(text.as_bytes()), None);
        }
    }
}
