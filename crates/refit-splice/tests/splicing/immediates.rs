//! Immediates that are replaced in place, with probes beside them.

use std::sync::Arc;

use refit_analysis::Live;
use refit_splice::immediates::{self, Immediate};
use refit_splice::remains::Which;
use refit_splice::{Action, At, Installed, Plan, Site, Why, remains};

use super::victim::Victim;

/// Offset of `cmp $3,%ecx` in `work`, which bounds its loop, and of the number.
const COMPARES: u64 = 17;
const NUMBER: u64 = 19;
const TIMES: u32 = 1000;

fn bound(victim: &Victim, new: u8) -> Immediate {
    let begin = victim.address("work");
    Immediate {
        instruction: begin + COMPARES,
        address: begin + NUMBER,
        old: vec![3],
        new: vec![new],
    }
}

/// Returns what the loop of `work` adds: `work` returns its argument this many times more.
fn rounds(victim: &mut Victim) -> u64 {
    let all = victim.work(TIMES);
    let last = all.split_whitespace().last().expect("a sum");
    let sum: u64 = last.parse().expect("a number");
    // Each of the two functions is called with 0, 1, 2, …; `leaf` returns twice its argument and 1.
    let arguments = u64::from(TIMES) * u64::from(TIMES - 1) / 2;
    // Two threads call them.
    (sum / 2 - u64::from(TIMES) - 2 * arguments) / arguments - 1
}

/// Returns a site in `work` of the instructions that step and compare.
fn site(victim: &Victim) -> Site {
    let address = victim.address("work") + COMPARES - 3;
    let mut code = vec![0; 32];
    victim.program().read(address, &mut code).expect("its code");
    Site {
        address,
        at: At::Before,
        code,
        room: 6,
        live: Live::ALL,
        alone: false,
        springboards: Vec::new(),
        actions: vec![Action::Count { cell: 0 }.into()],
        function: None,
        procedures: Arc::default(),
    }
}

#[test]
fn a_number_is_replaced_again_and_restored() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    assert_eq!(rounds(&mut victim), 3);
    for new in [5, 7, 4] {
        immediates::set(&program, &[bound(&victim, new)]).expect("set");
        assert_eq!(rounds(&mut victim), u64::from(new));
        let settings = immediates::settings(&program).expect("read");
        assert_eq!(settings.len(), 1);
        assert_eq!((&settings[0].bytes[0].old, &settings[0].bytes[0].new), (&vec![3], &vec![new]));
        // What was there before has been taken out.
        assert_eq!(remains::find(&program).expect("found").len(), 1);
    }
    // Probes are taken out, and not this.
    remains::take_out(&program, Which::Probes).expect("taken out");
    assert_eq!(rounds(&mut victim), 4);
    let at = victim.address("work") + NUMBER;
    assert_eq!(immediates::unset(&program, at..at + 1).expect("unset"), 1);
    assert_eq!(rounds(&mut victim), 3);
    assert_eq!(victim.traces(), before);
    assert_eq!(immediates::unset(&program, at..at + 1).expect("nothing"), 0);
    // So does the repair after a kill.
    immediates::set(&program, &[bound(&victim, 6)]).expect("set");
    let removed = remains::repair(&program).expect("repaired");
    assert_eq!((removed.areas, removed.sites, removed.foreign), (1, 1, 0));
    assert_eq!(victim.traces(), before);
}

/// A refit that was killed between the change and the removal of the earlier setting leaves two.
#[test]
fn settings_of_the_same_number_are_undone_in_reverse_order() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    immediates::set(&program, &[bound(&victim, 5)]).expect("set");
    // The bytes are those of the file again, so that the second setting does not know of the first.
    program.write(victim.address("work") + NUMBER, &[3]).expect("written");
    immediates::set(&program, &[bound(&victim, 5)]).expect("set");
    let removed = remains::repair(&program).expect("repaired");
    assert_eq!((removed.sites, removed.foreign, removed.kept), (1, 0, 0));
    assert_eq!(victim.traces(), before);
    assert_eq!(rounds(&mut victim), 3);
}

#[test]
fn a_number_that_runs_elsewhere_is_refused_and_so_is_the_opposite() {
    let mut victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    let (plan, refused) = Plan::new(vec![site(&victim)]);
    assert!(refused.is_empty(), "{refused:?}");
    Installed::new(&program, &plan, 1, None).expect("installed");
    let refused = immediates::set(&program, &[bound(&victim, 5)]);
    assert!(matches!(refused, Err(Why::Elsewhere { .. })), "{refused:?}");
    remains::repair(&program).expect("taken out");
    immediates::set(&program, &[bound(&victim, 5)]).expect("set");
    let (plan, _) = Plan::new(vec![site(&victim)]);
    let refused = Installed::new(&program, &plan, 1, None);
    assert!(matches!(refused, Err(Why::Immediate { .. })), "{refused:?}");
    assert_eq!(rounds(&mut victim), 5);
    remains::repair(&program).expect("taken out");
    assert_eq!(victim.traces(), before);
}

#[test]
fn other_bytes_and_several_pages_are_refused() {
    let victim = Victim::start();
    let program = victim.program();
    let before = victim.traces();
    let other = Immediate { old: vec![9], ..bound(&victim, 5) };
    let refused = immediates::set(&program, &[other]);
    assert!(matches!(refused, Err(Why::Changed { .. })), "{refused:?}");
    let far = bound(&victim, 5);
    let far = Immediate { address: far.address + 4096, ..far };
    let refused = immediates::set(&program, &[bound(&victim, 5), far]);
    assert!(matches!(refused, Err(Why::Pages { .. })), "{refused:?}");
    let uneven = Immediate { new: vec![1, 2], ..bound(&victim, 5) };
    assert!(immediates::set(&program, &[uneven]).is_err());
    assert_eq!(victim.traces(), before);
}
