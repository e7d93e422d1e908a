//! Restartable sequences are restarted while their function is probed.

use std::path::Path;
use std::sync::OnceLock;

use super::copies::module;
use super::victim::{Built, Victim, build};
use refit_probe::sites::{NoSite, Place};
use refit_probe::spec::Spec;
use refit_probe::watch;
use refit_splice::{Action, At, Installed, Plan, remains};

const SOURCE: &str = "probing/sequences.c";

fn moving() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &[])).path()
}

fn fixed() -> &'static Path {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| build("cc", SOURCE, &["-static"])).path()
}

/// Has the program add 50 times, with a site at this address. The first attempt of each is aborted,
/// and any that the scheduler interrupts.
fn add(victim: &mut Victim, site: u64) {
    let answer = victim.ask("add 50");
    let numbers = answer.split_whitespace().filter_map(|word| word.parse().ok());
    let [added, aborted, lost] = numbers.collect::<Vec<u32>>()[..] else { panic!("{answer}") };
    assert!((added, lost) == (50, 0) && aborted >= 50, "{answer}, {site:#x}");
}

#[test]
fn sequences_are_restarted_with_sites_around_them() {
    for path in [moving(), fixed()] {
        let mut victim = Victim::of(path);
        let program = victim.program();
        let before = victim.traces();
        add(&mut victim, 0);
        let (module, bias) = module(&program, path);
        let place = Place::new(&module, module.find("t_add")[0], bias);
        let own = module.image().sequences();
        let [sequence] = own else { panic!("{own:x?}") };
        let (mut sites, mut refused) = (Vec::new(), Vec::new());
        for one in place.flow().instructions() {
            let actions = vec![Action::Count { cell: 0 }.into(), Action::POISON.into()];
            match place.site(one.address, At::Before, actions) {
                Ok(site) => sites.push(site),
                Err(NoSite::Sequence { address }) => {
                    assert_eq!(address, sequence.addresses.start);
                    refused.push(one.address);
                }
                Err(other) => panic!("{other}"),
            }
        }
        // Also refused: the store that announces the sequence.
        let inside = |one: &&u64| sequence.addresses.contains(one);
        let within = refused.iter().filter(inside).count();
        assert!(within == 7 && refused.len() > within, "{refused:x?} {sequence:x?}");
        // One after the other, since their jumps overlap.
        let mut spliced = 0;
        for site in sites {
            let address = site.address;
            let (plan, refused) = Plan::new(vec![site]);
            if !refused.is_empty() {
                continue;
            }
            let installed = Installed::new(&program, &plan, 1, None).expect("installed");
            add(&mut victim, address);
            remains::repair(&program).expect("taken out");
            spliced += u32::from(installed.cell(0).expect("read") > 0);
        }
        assert!(spliced > 4, "{spliced}");
        let spec: Spec = "uprobe:victim:t_add { count, latency }".parse().expect("a spec");
        let watch = watch::prepare(&program, &[spec], None).expect("prepared");
        let watch = watch.install(&program).expect("installed");
        add(&mut victim, 0);
        watch.remove(&program).expect("removed");
        let spec: Spec = "uprobe:victim:t_add+0x1a { count }".parse().expect("a spec");
        let why = watch::prepare(&program, &[spec], None).expect_err("it would not be restarted");
        assert!(why.to_string().contains("restartable sequence"), "{why}");
        assert_eq!(victim.traces(), before);
    }
}
