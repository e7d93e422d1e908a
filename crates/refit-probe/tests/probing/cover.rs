//! Blocks that are reached are reported, and no others; those that were reached cost nothing any
//! more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use refit_analysis::FunctionId;
use refit_probe::cover::{self, Blocks, Cover, Tally, Watching};
use refit_probe::implied::implied;
use refit_probe::sites::Place;
use refit_probe::{drcov, modules, watch};
use refit_splice::process::Program;
use refit_splice::{Action, At, Installed, Plan, Site, remains};

use super::program::Routes;

fn covered(program: &Program, modules: &[&str]) -> Cover {
    let modules: Vec<String> = modules.iter().map(|&name| name.to_owned()).collect();
    let prepared =
        cover::prepare(program, &modules, Blocks::Roomy, Watching::Flags).expect("prepared");
    prepared.install(program).expect("installed")
}

/// Returns which blocks of `route` were reached.
fn route(cover: &mut Cover) -> Vec<bool> {
    cover.look().expect("read");
    let mut functions = cover.files.iter().flat_map(|file| &file.functions);
    let route = functions.find(|function| function.name == "route").expect("route");
    assert_eq!(cover.tally(route).watched, 6, "{route:x?}");
    route.blocks.iter().map(|block| cover.is_reached(block)).collect()
}

fn all_reached(cover: &Cover) -> usize {
    let functions = cover.files.iter().flat_map(|file| &file.functions);
    functions.map(|function| cover.tally(function).reached as usize).sum()
}

#[test]
fn blocks_that_are_reached_are_told_and_taken_out() {
    let mut routes = Routes::start();
    let program = routes.program();
    let mut cover = covered(&program, &[]);
    let watched = cover.left();
    assert_eq!(route(&mut cover), [false; 6]);
    assert_eq!(routes.ask("route 2"), "15");
    assert_eq!(route(&mut cover), [true, true, false, true, false, true]);
    assert_eq!(routes.ask("route 3"), "19");
    assert_eq!(route(&mut cover), [true, true, true, true, false, true]);

    let before = cover.pending();
    // What is implied by other blocks has no site.
    assert!(before < all_reached(&cover), "{before} of {}", all_reached(&cover));
    // The stop is long due.
    cover.relieve(&program, Instant::now() + Duration::from_secs(3600)).expect("taken out");
    assert_eq!(cover.left(), watched - before);
    assert_eq!((cover.relieved.sites, cover.relieved.foreign, cover.stops), (before, 0, 1));
    assert_eq!(routes.ask("route 3"), "19");
    assert_eq!(routes.ask("route 300"), "926");
    assert_eq!(route(&mut cover), [true; 6]);
    assert!(cover.left() > watched - before - 10);

    cover.remove(&program).expect("taken out");
    assert_eq!(routes.ask("route 300"), "926");
    routes.is_untouched();
}

#[test]
fn what_a_killed_refit_left_is_taken_out_although_some_had_gone() {
    let mut routes = Routes::start();
    let program = routes.program();
    let mut cover = covered(&program, &["*"]);
    assert_eq!(routes.ask("route 2"), "15");
    cover.look().expect("read");
    cover.relieve(&program, Instant::now() + Duration::from_secs(3600)).expect("taken out");
    let (left, removed) = (cover.left(), cover.relieved.sites);
    assert!(removed > 100 && cover.relieved.foreign == 0, "{:?}", cover.relieved);
    // It knows only what the program contains.
    drop(cover);
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.sites, removed.foreign), (left, 0));
    assert_eq!(routes.ask("route 300"), "926");
    routes.is_untouched();
}

#[test]
fn all_blocks_are_watched_where_functions_are_copied() {
    let mut routes = Routes::start();
    let program = routes.program();
    let share = |which| {
        let prepared =
            cover::prepare(&program, &["*".to_owned()], which, Watching::Flags).expect("prepared");
        let mut cover = prepared.install(&program).expect("installed");
        let functions = cover.files.iter().flat_map(|file| &file.functions);
        let tally = functions.fold(Tally::default(), |all, one| all.and(cover.tally(one)));
        cover.remove(&program).expect("taken out");
        tally
    };
    let (roomy, all) = (share(Blocks::Roomy), share(Blocks::All));
    assert_eq!(roomy.blocks, all.blocks);
    // The rest are functions whose ways are not all known.
    assert!(all.watched > roomy.watched && all.watched * 100 > all.blocks * 97, "{all:?}");
    let prepared = cover::prepare(&program, &["*".to_owned()], Blocks::All, Watching::Flags)
        .expect("prepared");
    let mut cover = prepared.install(&program).expect("installed");
    assert_eq!(routes.ask("route 2"), "15");
    cover.look().expect("read");
    let pending = cover.pending();
    // Flags in copies are taken out as well.
    cover.relieve(&program, Instant::now() + Duration::from_secs(3600)).expect("taken out");
    assert_eq!((cover.relieved.sites, cover.relieved.foreign, cover.pending()), (pending, 0, 0));
    assert_eq!(route(&mut cover), [true, true, false, true, false, true]);
    assert_eq!(routes.ask("route 3"), "19");
    assert_eq!(routes.ask("route 300"), "926");
    assert_eq!(route(&mut cover), [true; 6]);
    cover.remove(&program).expect("taken out");
    assert_eq!(routes.ask("route 300"), "926");
    routes.is_untouched();
}

#[test]
fn constants_within_instructions_stay() {
    let mut routes = Routes::start();
    let program = routes.program();
    for which in [Blocks::Roomy, Blocks::All] {
        let prepared = cover::prepare(&program, &[], which, Watching::Flags).expect("prepared");
        let mut cover = prepared.install(&program).expect("installed");
        assert_eq!(routes.ask("constant 0"), "1122334455667788", "{which:?}");
        assert_eq!(routes.ask("constant 1"), "22446688aaccef11", "{which:?}");
        cover.remove(&program).expect("taken out");
    }
    routes.is_untouched();
}

#[test]
fn other_tools_read_which_blocks_were_reached() {
    let mut routes = Routes::start();
    let program = routes.program();
    let mut cover = covered(&program, &[]);
    assert_eq!(routes.ask("route 2"), "15");
    cover.remove(&program).expect("taken out");
    let mut bytes = Vec::new();
    drcov::write(&cover, &mut bytes).expect("written");
    let at = bytes.windows(10).position(|text| text == b"BB Table: ").expect("a table");
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let lines: Vec<&str> = head.lines().collect();
    assert_eq!(lines[0], "DRCOV VERSION: 2");
    assert_eq!(
        lines[2..4],
        ["Module Table: version 2, count 1", "Columns: id, base, end, entry, path"]
    );
    assert!(lines[4].ends_with("/routes"), "{head}");
    let line = bytes[at..].iter().position(|byte| *byte == b'\n').expect("a line") + at + 1;
    let entries: Vec<(u64, u64)> = bytes[line..]
        .chunks_exact(8)
        .map(|entry| {
            let start = u32::from_le_bytes(entry[..4].try_into().expect("four bytes"));
            (u64::from(start), u64::from(u16::from_le_bytes([entry[4], entry[5]])))
        })
        .collect();
    assert_eq!(entries.len(), all_reached(&cover));
    let mut functions = cover.files.iter().flat_map(|file| &file.functions);
    let route = functions.find(|function| function.name == "route").expect("route");
    for block in &route.blocks {
        let entry = (block.address - cover.files[0].span.0, block.size);
        assert_eq!(entries.contains(&entry), cover.is_reached(block));
    }
}

#[test]
fn files_are_named_by_patterns() {
    let routes = Routes::start();
    let program = routes.program();
    let cover = covered(&program, &["libc.so*"]);
    let names: Vec<&str> = cover.files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["libc.so.6"]);
    let all = cover.arrivals(&program, &["*".to_owned()]).expect("its files");
    assert!(all.contains(&"routes".to_owned()) && !all.contains(&"libc.so.6".to_owned()));
    remains::repair(&program).expect("taken out");
    let error = cover::prepare(&program, &["nothing*".to_owned()], Blocks::Roomy, Watching::Flags)
        .expect_err("no such file");
    assert!(error.to_string().contains("no code of a file called nothing*"), "{error}");
    routes.is_untouched();
}

#[test]
fn code_that_nothing_names_stays() {
    let mut routes = Routes::start();
    let program = routes.program();
    let spec = "uprobe:routes:tight { latency }".parse().expect("a spec");
    let specs = [spec];
    let prepared = watch::prepare(&program, &specs, None).expect("prepared");
    let watch = prepared.install(&program).expect("installed");
    assert_eq!(routes.ask("tight 5"), "15");
    watch.remove(&program).expect("taken out");
    routes.is_untouched();
}

#[test]
fn jumps_past_a_prefix_lead_where_they_did() {
    let mut routes = Routes::start();
    let program = routes.program();
    let cover = covered(&program, &[]);
    assert_eq!(routes.ask("locked 0"), "1");
    assert_eq!(routes.ask("locked 1"), "2");
    drop(cover);
    remains::repair(&program).expect("taken out");
    assert_eq!(routes.ask("locked 1"), "3");
    routes.is_untouched();
}

/// Each block has a flag of its own, by which it is checked what flags of others say of it.
#[test]
fn implied_blocks_were_reached_if_flags_of_their_own_say_so() {
    let mut routes = Routes::start();
    let program = routes.program();
    let mut sites = BTreeMap::<u64, Site>::new();
    let mut implications = Vec::new();
    for mapped in modules::of(&program).expect("its files") {
        let module = mapped.open().expect("an analysis");
        let bias = mapped.bias(module.image()).expect("the same file");
        for number in 0..module.functions().len() as u32 {
            let place = Place::new(&module, FunctionId(number), bias);
            let at = |block: u32| place.flow().blocks()[block as usize].start.wrapping_add(bias);
            for block in place.flow().blocks() {
                let site = place.site(block.start, At::Before, Vec::new());
                sites.extend(site.ok().map(|site| (site.address, site)));
            }
            let name = module.function(FunctionId(number)).name();
            for one in implied(&module, place.flow()) {
                let by: Vec<u64> = one.by.iter().map(|&to| at(to)).collect();
                implications.push((name.clone(), at(0), at(one.block), by));
            }
        }
    }
    for (cell, site) in (0..).zip(sites.values_mut()) {
        site.actions = vec![Action::Flag { cell }.into()];
    }
    let addresses: Vec<u64> = sites.keys().copied().collect();
    let (plan, refused) = Plan::new(sites.into_values().collect());
    let installed = Installed::new(&program, &plan, addresses.len() as u32, None);
    let installed = installed.expect("installed");
    for line in ["route 2", "route 3", "route 300", "constant 0", "locked 1", "route 7"] {
        routes.ask(line);
    }
    // A block with a call is reached before the block to which the call returns.
    assert_eq!(routes.ask("asks 7"), "which?");
    let flags = installed.flags().expect("read");
    assert_eq!(routes.ask("this one"), "8");
    let mut own: BTreeMap<u64, bool> = addresses.iter().copied().zip(flags).collect();
    for (index, _) in refused {
        own.remove(&addresses[index]);
    }
    let (mut reached, mut others) = (0, 0);
    for (name, entry, block, by) in &implications {
        let by: Option<Vec<bool>> = by.iter().map(|to| own.get(to).copied()).collect();
        let (Some(by), Some(&itself)) = (by, own.get(block)) else { continue };
        let by = by.contains(&true);
        assert!(by || !itself, "{name}: {block:#x} is missing");
        // Activations that began before are seen from the middle on: those of functions that are
        // not entered later, and of the one in which the program waits for a line.
        let seen = own.get(entry) == Some(&true) && !name.contains("scanf");
        assert!(!by || itself || !seen, "{name}: {block:#x} was not reached");
        *if itself { &mut reached } else { &mut others } += 1;
    }
    assert!(reached > 50 && others > 1000, "{reached} and {others}");
    remains::repair(&program).expect("taken out");
    routes.is_untouched();
}
