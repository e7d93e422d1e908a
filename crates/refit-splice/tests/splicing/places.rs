//! Sites that are spliced in place.

use std::sync::Arc;

use std::time::Duration;

use super::victim::{self, Victim};
use refit_analysis::Live;
use refit_splice::process::{Program, Refusal};
use refit_splice::{Action, At, Installed, Plan, Site, Springboard, Value, Why, remains};

/// Returns a live set of these general registers alone.
fn general(mask: u16) -> Live {
    Live { general: mask, flags: 0, vectors: 0, upper: 0, masks: 0, x87: false, red_zone: false }
}

/// Returns a site at the entry of a function of the victim.
fn site(victim: &Victim, function: &str, room: usize, cell: u32) -> Site {
    let address = victim.address(function);
    let mut code = vec![0; 32];
    victim.program().read(address, &mut code).expect("its code");
    Site {
        address,
        at: At::Before,
        code,
        room,
        // `r11` is dead there.
        live: general(!(1 << 11)),
        alone: false,
        springboards: Vec::new(),
        actions: vec![Action::Count { cell }.into()],
        function: None,
        procedures: Arc::default(),
    }
}

/// Returns a site that takes a short jump, to a long one in the gap.
fn short_site(victim: &Victim, cell: u32) -> Site {
    let place = victim.address("gap");
    let mut code = [0; 5];
    victim.program().read(place, &mut code).expect("padding");
    let springboards = vec![Springboard { address: place, code }];
    Site { springboards, ..site(victim, "short_one", 3, cell) }
}

fn install(program: &Program, sites: Vec<Site>, cells: u32) -> Installed {
    let (plan, refused) = Plan::new(sites);
    assert!(refused.is_empty(), "{refused:?}");
    Installed::new(program, &plan, cells, None).expect("installed")
}

#[test]
fn every_call_is_counted_once_and_nothing_is_left() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    let plain = victim.work(10_000);
    let installed = install(&program, vec![site(&victim, "work", 11, 0)], 1);
    assert_eq!(installed.cell(0).expect("read"), 0);
    assert_eq!(victim.work(10_000), plain);
    assert_eq!(installed.cell(0).expect("read"), 20_000, "two threads, 10,000 calls each");
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.sites, removed.areas, removed.kept, removed.foreign), (1, 1, 0, 0));
    assert_eq!(victim.work(10_000), plain);
    assert_eq!(installed.cell(0).expect("read"), 20_000);
    assert_eq!(victim.traces(), before);
}

#[test]
fn code_comes_and_goes_under_running_threads_and_handlers() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    victim.begin();
    for _ in 0..60 {
        let sites = vec![
            short_site(&victim, 3),
            site(&victim, "work", 11, 0),
            site(&victim, "leaf", 9, 1),
            site(&victim, "calls", 6, 2),
        ];
        let installed = install(&program, sites, 4);
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!(removed.foreign, 0);
        drop(installed);
    }
    // An area stays as long as a signal handler that was running would return to it.
    while remains::find(&program).expect("its mappings").iter().any(|left| left.sites() > 0) {
        remains::repair(&program).expect("taken out");
    }
    assert_eq!(victim.end(), "right");
    assert_eq!(victim.traces(), before);
}

#[test]
fn a_histogram_counts_sizes() {
    let mut victim = Victim::start();
    let program = victim.program();
    let mut at = site(&victim, "work", 11, 0);
    // rdi: the first argument.
    let value = Value::register(7);
    at.actions =
        vec![Action::Histogram { cell: 0, value }.into(), Action::Count { cell: 65 }.into()];
    let installed = install(&program, vec![at], 66);
    victim.work(8);
    let cells: Vec<u64> = (0..6).map(|cell| installed.cell(cell).expect("read")).collect();
    // Two threads, with arguments 0 to 7: 0; 1; 2 and 3; 4 to 7.
    assert_eq!(cells, [2, 2, 4, 8, 0, 0]);
    assert_eq!(installed.cell(65).expect("read"), 16);
    remains::repair(&program).expect("taken out");
}

#[test]
fn nothing_known_means_all_is_saved() {
    let mut victim = Victim::start();
    let program = victim.program();
    let plain = victim.work(1000);
    let mut at = site(&victim, "leaf", 9, 0);
    at.live = Live::ALL;
    let installed = install(&program, vec![at], 1);
    assert_eq!(victim.work(1000), plain);
    assert_eq!(installed.cell(0).expect("read"), 2000);
    remains::repair(&program).expect("taken out");
}

#[test]
fn poison_shows_what_is_wrongly_called_dead() {
    let mut victim = Victim::start();
    let program = victim.program();
    let plain = victim.work(100);
    let mut at = site(&victim, "work", 11, 0);
    at.actions = vec![Action::POISON.into()];
    // The argument, and the registers that functions preserve.
    let kept = 1 << 7 | 1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12;
    at.live = general(kept);
    let installed = install(&program, vec![at.clone()], 1);
    assert_eq!(victim.work(100), plain);
    remains::repair(&program).expect("taken out");
    drop(installed);
    at.live = general(kept & !(1 << 7));
    let installed = install(&program, vec![at], 1);
    assert_ne!(victim.work(100), plain);
    remains::repair(&program).expect("taken out");
    drop(installed);
}

#[test]
fn short_places_are_reached_through_padding_or_refused() {
    let victim = Victim::start();
    let at = site(&victim, "short_one", 3, 0);
    let (plan, refused) = Plan::new(vec![at]);
    assert!(plan.is_empty());
    assert!(matches!(refused[..], [(0, Why::Short { room: 3, .. })]), "{refused:?}");

    let mut victim = victim;
    let program = victim.program();
    let plain = victim.work(1000);
    let with = short_site(&victim, 0);
    let [Springboard { address: place, code }] = with.springboards[..] else { panic!("one") };
    let installed = install(&program, vec![with], 1);
    assert_eq!(victim.work(1000), plain);
    assert_eq!(installed.cell(0).expect("read"), 2000);
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.sites, removed.areas), (1, 1));
    let mut now = [0; 5];
    program.read(place, &mut now).expect("padding");
    assert_eq!(now, code);
}

#[test]
fn a_child_that_was_forked_meanwhile_is_cleaned_too() {
    let mut victim = Victim::start();
    let program = victim.program();
    let installed = install(&program, vec![site(&victim, "work", 11, 0)], 1);
    let child = victim.fork();
    assert!(!remains::find(&child).expect("its mappings").is_empty());
    let removed = remains::repair(&program).expect("taken out");
    assert_eq!((removed.sites, removed.areas), (2, 2));
    assert!(remains::find(&child).expect("its mappings").is_empty());
    drop(installed);
}

#[test]
fn code_that_is_not_as_it_was_read_is_left_alone() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    let mut at = site(&victim, "work", 11, 0);
    at.code[4] ^= 1;
    let (plan, _) = Plan::new(vec![at]);
    let error = Installed::new(&program, &plan, 1, None).expect_err("other bytes");
    assert!(matches!(error, Why::Changed { .. }), "{error}");
    assert_eq!(victim.traces(), before);
    victim.work(10);
}

#[test]
fn what_cannot_run_elsewhere_is_refused() {
    let victim = Victim::start();
    let (_, refused) = Plan::new(vec![site(&victim, "asks", 7, 0)]);
    let [(0, Why::Fixed { reason, .. })] = &refused[..] else { panic!("{refused:?}") };
    assert!(reason.contains("kernel"), "{reason}");
}

#[test]
fn calls_that_wait_do_not_see_that_they_were_stopped() {
    let mut victim = Victim::start();
    let program = victim.program();
    victim.wait_in_calls();
    for _ in 0..20 {
        let held = program.stand_still(Duration::from_secs(10), |_| Ok::<_, Refusal>(()));
        held.expect("it stands");
    }
    assert_eq!(victim.end(), "waited");
}

#[test]
fn who_waits_where_nothing_reaches_it_stands_and_who_could_make_calls_is_named() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    victim.lend();
    // The child that shares its memory is stopped; the thread waits for that child.
    let stood = program.stand_still(Duration::from_secs(10), |still| {
        let asleep: Vec<u32> = still.asleep().map(|(thread, _)| thread).collect();
        Ok::<_, Refusal>((asleep, still.threads().count()))
    });
    let ((asleep, stopped), _) = stood.expect("it stands");
    assert_eq!((asleep, stopped), (vec![program.id()], 1));
    // No thread is left that could map a patch area.
    let (plan, _) = Plan::new(vec![site(&victim, "work", 11, 0)]);
    let error = Installed::new(&program, &plan, 1, None).expect_err("it waits for its child");
    let named = |refusal: &Refusal| matches!(refusal, Refusal::Restless { thread, .. } if *thread == program.id());
    assert!(matches!(&error, Why::Program(refusal) if named(refusal)), "{error}");
    assert!(error.to_string().contains("waits for the child of its vfork"), "{error}");
    assert_eq!(victim.end(), "back");
    assert_eq!(victim.traces(), before);
    victim.work(10);
}

#[test]
fn programs_that_cannot_be_changed_are_refused() {
    let error = |id| Program::open(id).expect_err("refused");
    assert!(matches!(error(0x3f_ffff), Refusal::NoSuch { .. }));
    let mut ended = std::process::Command::new("true").spawn().expect("true");
    victim::until(|| refit_sys::process::life(ended.id()).is_some_and(|life| life.ended()));
    assert!(matches!(error(ended.id()), Refusal::Ended { .. }));
    ended.wait().expect("its end");
    let kernel =
        std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if kernel {
        assert!(
            matches!(error(2), Refusal::Kernel { .. } | Refusal::NotYours { .. }),
            "{}",
            error(2)
        );
    }
}

#[test]
fn sites_go_one_by_one_under_running_threads_and_handlers() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    let flag = |mut site: Site, cell: u32| {
        site.actions = vec![Action::Flag { cell }.into()];
        // A flag changes no register.
        site.live = Live::ALL;
        site
    };
    victim.begin();
    for _ in 0..60 {
        let sites = vec![
            flag(short_site(&victim, 0), 0),
            flag(site(&victim, "work", 11, 1), 1),
            flag(site(&victim, "leaf", 9, 2), 2),
            flag(site(&victim, "asks", 2, 3), 3),
        ];
        let (plan, refused) = Plan::new(sites.clone());
        assert_eq!(refused.len(), 1, "a system call stays where it is");
        let installed = Installed::new(&program, &plan, 4, None).expect("installed");
        victim::until(|| installed.flags().expect("read") == [true, true, true, false]);
        let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
        assert!(installed.is_removable(addresses[0]) && !installed.is_removable(addresses[3]));
        let timeout = Duration::from_secs(10);
        let removed =
            installed.remove_sites(&program, &addresses[..2], timeout).expect("taken out");
        assert_eq!((removed.sites, removed.foreign), (2, 0));
        let again = installed.remove_sites(&program, &addresses[..2], timeout).expect("nothing");
        assert_eq!((again.sites, again.foreign), (0, 0));
        let removed = remains::repair(&program).expect("taken out");
        assert_eq!((removed.sites, removed.foreign), (1, 0));
    }
    while remains::find(&program).expect("its mappings").iter().any(|left| left.sites() > 0) {
        remains::repair(&program).expect("taken out");
    }
    assert_eq!(victim.end(), "right");
    assert_eq!(victim.traces(), before);
}
