//! Describes copies of whole libraries, and reads the descriptions as those of any other file.

use std::collections::BTreeSet;
use std::path::Path;

use refit_analysis::image::{Image, Procedure};

use super::*;
use crate::listing::{Frame, Values};

/// Distance of the copies from the originals: far enough, so that nothing of the original is there.
const APART: u64 = 1 << 28;

/// Returns the addresses of a procedure at which something changes.
fn edges(procedure: &Procedure) -> BTreeSet<u64> {
    let sites = procedure.language_data.iter().flat_map(|data| &data.sites);
    let sites = sites.flat_map(|site| [site.addresses.start, site.addresses.end]);
    let rows = procedure.rows.iter().map(|(begin, _)| *begin);
    rows.chain(sites).filter(|edge| procedure.addresses.contains(edge)).collect()
}

/// Returns an image that describes a copy of each procedure.
fn described(all: &[Procedure]) -> Image {
    let (first, last) = (&all[0].addresses, &all[all.len() - 1].addresses);
    let code = APART + first.start / 4096 * 4096;
    let data = (APART + last.end).next_multiple_of(4096);
    let head = Head {
        address: 0,
        tables: 4096,
        code,
        data,
        end: data,
        records: 0,
        session: (0, 0),
        finders: 0,
        generation: 0,
        calls: false,
        versions: false,
    };
    let mut unwinding = Unwinding::default();
    for procedure in all {
        let of = |edge: u64| (edge + APART, Frame::Of(edge, Values::UNMOVED));
        let size = (procedure.addresses.end - procedure.addresses.start) as usize;
        let parts = vec![procedure.clone()];
        let code = EncodedCode {
            at: procedure.addresses.start + APART,
            code: vec![0x90; size],
            records: Vec::new(),
            moves: Vec::new(),
            flags: Vec::new(),
            calls: false,
            frames: edges(procedure).into_iter().map(of).collect(),
            descriptors: Vec::new(),
            procedures: Arc::new(Procedures { name: "it".into(), parts }),
        };
        unwinding.add(&code);
    }
    let image = unwinding.encode(&head, None).expect("room");
    let mut bytes = image.header;
    bytes.resize(head.tables as usize, 0);
    bytes.extend(image.tables);
    bytes.resize(data as usize, 0x90);
    Image::parse(Path::new("described"), bytes).expect("an image")
}

#[test]
fn descriptions_of_copies_say_what_the_originals_say() {
    for library in ["libstdc++.so.6", "libc.so.6"] {
        let path = Path::new("/lib/x86_64-linux-gnu").join(library);
        let original = Image::open(&path).expect("a library");
        let starts = original.frames().iter().map(|frame| frame.addresses.start);
        let mut all: Vec<Procedure> =
            starts.filter_map(|start| original.procedure_at(start)).collect();
        assert_eq!(all.len(), original.frames().len());
        // The code that signal handlers return to is never copied.
        all.retain(|procedure| !procedure.signal);
        let copies = described(&all);
        let (mut rows, mut sites) = (0, 0);
        for procedure in &all {
            let at = procedure.addresses.start + APART;
            let copy = copies.procedure_at(at).unwrap_or_else(|| panic!("{at:#x} in {library}"));
            assert_eq!(copy.personality, procedure.personality);
            for edge in edges(procedure) {
                rows += 1;
                assert_eq!(copy.row(edge + APART), procedure.row(edge), "{edge:#x}");
                let site = |of: &Procedure, at: u64| {
                    let site = of.language_data.as_ref()?.site(at)?;
                    Some((site.pad, site.action))
                };
                sites += usize::from(site(procedure, edge).is_some());
                assert_eq!(site(&copy, edge + APART), site(procedure, edge), "{edge:#x}");
            }
            let rest = |of: &Procedure| {
                let data = of.language_data.clone().filter(|data| !data.actions.is_empty());
                data.map(|data| (data.actions, data.types, data.specifications))
            };
            assert_eq!(rest(&copy), rest(procedure), "{:#x}", procedure.addresses.start);
        }
        assert!(rows > 10_000 && sites > 100, "{rows} rows, {sites} call sites");
    }
}
