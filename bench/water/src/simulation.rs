//! The simulation: a box of molecules, shared out to threads that meet at barriers (as WATER of the
//! SPLASH suite does; Kohr 1994, §6.1 and table 2 for the procedures).
//!
//! Each thread moves its own molecules. Positions are published before forces are computed; forces
//! on a molecule are added up under a lock of its own, since pairs belong to the thread of one of
//! the two.

use std::sync::Barrier;

use parking_lot::{Mutex, RwLock};

use crate::molecule::{Molecule, Sites};
use crate::pair;
use crate::trace::{Probes, Procedure};

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) molecules: usize,
    pub(crate) steps: usize,
    pub(crate) threads: usize,
    /// The time of a step, in ps.
    pub(crate) dt: f64,
}

/// The energies after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Energies {
    pub(crate) kinetic: f64,
    pub(crate) potential: f64,
}

impl Energies {
    pub(crate) fn total(&self) -> f64 {
        self.kinetic + self.potential
    }
}

/// The distance of neighbors in a cubic lattice at the density of water.
const SPACING: f64 = 3.104;
/// The mean initial velocity of a site along an axis, in Å/ps: some 100 K, and as much will come
/// from the lattice.
const VELOCITY: f64 = 2.0;
/// The maximum cut-off, which is at most half of the box.
const CUTOFF: f64 = 9.0;

/// The state that threads share.
struct Shared {
    setting: Setting,
    side: f64,
    cutoff: f64,
    positions: RwLock<Vec<Sites>>,
    forces: Vec<Mutex<Sites>>,
    barrier: Barrier,
    energies: Vec<Mutex<Energies>>,
}

/// Runs the simulation; returns the energies after each step.
pub(crate) fn run<P: Probes>(setting: Setting) -> Vec<Energies> {
    let _main = P::procedure(Procedure::Main);
    let per_side = (setting.molecules as f64).cbrt().ceil() as usize;
    let side = per_side as f64 * SPACING;
    let molecules = {
        let _initia = P::procedure(Procedure::Initia);
        lattice(setting, per_side)
    };
    let share = setting.molecules.div_ceil(setting.threads);
    // With few molecules some threads would have none.
    let threads = molecules.len().div_ceil(share);
    let shared = Shared {
        setting,
        side,
        cutoff: CUTOFF.min(side / 2.0 - 1.0),
        positions: RwLock::new(molecules.iter().map(|m| *m.sites()).collect()),
        forces: molecules.iter().map(|_| Mutex::default()).collect(),
        barrier: Barrier::new(threads),
        energies: (0..setting.steps).map(|_| Mutex::default()).collect(),
    };
    std::thread::scope(|scope| {
        for (thread, mine) in molecules.chunks(share).enumerate().skip(1) {
            let shared = &shared;
            let begin = move || work::<P>(shared, thread * share, mine.to_vec());
            std::thread::Builder::new()
                .name(format!("water {thread}"))
                .spawn_scoped(scope, begin)
                .expect("a thread can be made");
        }
        work::<P>(&shared, 0, molecules.chunks(share).next().unwrap_or_default().to_vec());
    });
    shared.energies.into_iter().map(Mutex::into_inner).collect()
}

/// Returns molecules on a lattice, turned and pushed at random, but always the same.
fn lattice(setting: Setting, per_side: usize) -> Vec<Molecule> {
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    let at = |i: usize| (i as f64 + 0.5) * SPACING;
    let molecule = |i: usize| {
        let center = [at(i % per_side), at(i / per_side % per_side), at(i / per_side / per_side)];
        let turn = random() * std::f64::consts::TAU;
        let push = [0; 3].map(|_| (random() - 0.5) * 2.0 * VELOCITY);
        Molecule::new(center, turn, [push; 3], setting.dt)
    };
    (0..setting.molecules).map(molecule).collect()
}

/// MDMAIN: the work of a thread.
fn work<P: Probes>(shared: &Shared, first: usize, mut mine: Vec<Molecule>) {
    let _mdmain = P::procedure(Procedure::Mdmain);
    let dt = shared.setting.dt;
    for step in 0..shared.setting.steps {
        {
            let _predic = P::procedure(Procedure::Predic);
            mine.iter_mut().for_each(Molecule::predict);
        }
        {
            let mut positions = shared.positions.write();
            for (i, molecule) in mine.iter().enumerate() {
                positions[first + i] = *molecule.sites();
                *shared.forces[first + i].lock() = Sites::default();
            }
        }
        meet::<P>(&shared.barrier);
        let mut potential = intra::<P>(shared, first, &mine);
        potential += inter::<P>(shared, first, mine.len());
        meet::<P>(&shared.barrier);
        {
            let _correc = P::procedure(Procedure::Correc);
            for (i, molecule) in mine.iter_mut().enumerate() {
                molecule.correct(&shared.forces[first + i].lock(), dt);
            }
        }
        {
            let _bndry = P::procedure(Procedure::Bndry);
            mine.iter_mut().for_each(|molecule| molecule.wrap(shared.side));
        }
        let kinetic = {
            let _kineti = P::procedure(Procedure::Kineti);
            mine.iter().map(|molecule| molecule.kinetic(dt)).sum::<f64>()
        };
        let _poteng = P::procedure(Procedure::Poteng);
        let mut energies = shared.energies[step].lock();
        energies.kinetic += kinetic;
        energies.potential += potential;
    }
    // No thread ends before all have finished: the parent is as busy as its children.
    meet::<P>(&shared.barrier);
}

fn meet<P: Probes>(barrier: &Barrier) {
    let _wait = P::barrier(std::ptr::from_ref(barrier).addr() as u64);
    barrier.wait();
}

/// INTRAF: adds the forces within molecules; returns their energy.
fn intra<P: Probes>(shared: &Shared, first: usize, mine: &[Molecule]) -> f64 {
    let _intraf = P::procedure(Procedure::Intraf);
    let mut energy = 0.0;
    for (i, molecule) in mine.iter().enumerate() {
        let (forces, potential) = molecule.bonds();
        energy += potential;
        update::<P>(&shared.forces[first + i], &forces);
    }
    energy
}

/// INTERF: adds the forces between molecules; returns their energy. A pair belongs to the molecule
/// from which the other is no more than half of all molecules ahead.
fn inter<P: Probes>(shared: &Shared, first: usize, count: usize) -> f64 {
    let _interf = P::procedure(Procedure::Interf);
    let positions = shared.positions.read();
    let n = positions.len();
    let mut energy = 0.0;
    for i in first..first + count {
        // Of two molecules that are exactly opposite each other, the lower one has the pair.
        let reach = if n.is_multiple_of(2) && i >= n / 2 { (n - 1) / 2 } else { n / 2 };
        for ahead in 1..=reach {
            let j = (i + ahead) % n;
            let arms = {
                let _cshift = P::procedure(Procedure::Cshift);
                pair::shift(&positions[i], &positions[j], shared.side, shared.cutoff)
            };
            let Some(arms) = arms else { continue };
            let (on_i, on_j, potential) = pair::forces(&arms, shared.cutoff);
            energy += potential;
            update::<P>(&shared.forces[i], &on_i);
            update::<P>(&shared.forces[j], &on_j);
        }
    }
    energy
}

/// UPDATE_FORCES: adds to the forces on a molecule, under its lock.
fn update<P: Probes>(forces: &Mutex<Sites>, more: &Sites) {
    let _update = P::procedure(Procedure::Update);
    let lock = std::ptr::from_ref(forces).addr() as u64;
    let mut forces = {
        let _wait = P::lock(lock);
        forces.lock()
    };
    let _hold = P::held(lock);
    for (force, more) in forces.iter_mut().flatten().zip(more.iter().flatten()) {
        *force += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Plain;

    const SETTING: Setting = Setting { molecules: 27, steps: 200, threads: 1, dt: 2e-4 };

    #[test]
    fn energy_is_neither_made_nor_lost() {
        let energies = run::<Plain>(SETTING);
        let first = energies[20].total();
        let most = energies.iter().skip(20).map(|e| e.kinetic).fold(0.0, f64::max);
        assert!(most > 0.0);
        for (step, energy) in energies.iter().enumerate().skip(20) {
            let drift = (energy.total() - first).abs() / most;
            assert!(drift < 0.01, "step {step}: {energy:?}, at first {first}");
        }
    }

    #[test]
    fn threads_change_nothing_but_the_order_of_sums() {
        let alone = run::<Plain>(SETTING);
        for threads in [2, 3, 5] {
            let together = run::<Plain>(Setting { threads, ..SETTING });
            for (a, b) in alone.iter().zip(&together).take(50) {
                assert!((a.total() - b.total()).abs() < 1e-6 * a.kinetic.abs(), "{a:?} {b:?}");
            }
        }
    }
}
