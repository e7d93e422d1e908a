//! Two molecules: the distances of their sites, and the forces between them.
//!
//! Both the attraction of the oxygens and that of the charges are shifted so that energy and force
//! go to zero at the cut-off: pairs can come and go without a jump in the energy.

use crate::molecule::{CHARGE, KCAL, Sites, Vector, difference, dot};

/// The depth and width of the attraction between oxygens (SPC/Fw).
const DEPTH: f64 = 0.155_425_3 * KCAL;
const WIDTH: f64 = 3.165_492;
/// The energy of two elementary charges at 1 Å: 1389.35 kJ/mol.
const COULOMB: f64 = 138_935.46;

/// CSHIFT: returns the vectors from each site of the second molecule to each of the first, along
/// the shortest way around the box; `None` if all of them are longer than the cut-off.
pub(crate) fn shift(a: &Sites, b: &Sites, side: f64, cutoff: f64) -> Option<[[Vector; 3]; 3]> {
    let around = difference(a[0], b[0]).map(|d| (d / side).round() * side);
    let from = |site: &Vector| difference(*site, around);
    let shifted = a.map(|site| from(&site));
    let mut arms = [[[0.0; 3]; 3]; 3];
    let mut near = false;
    for (i, of_a) in shifted.iter().enumerate() {
        for (j, of_b) in b.iter().enumerate() {
            arms[i][j] = difference(*of_a, *of_b);
            near |= dot(arms[i][j], arms[i][j]) < cutoff * cutoff;
        }
    }
    near.then_some(arms)
}

/// Returns the forces on the sites of both, and the energy.
pub(crate) fn forces(arms: &[[Vector; 3]; 3], cutoff: f64) -> (Sites, Sites, f64) {
    let (mut on_a, mut on_b, mut energy) = ([[0.0; 3]; 3], [[0.0; 3]; 3], 0.0);
    for i in 0..3 {
        for j in 0..3 {
            let arm = arms[i][j];
            let square = dot(arm, arm);
            if square >= cutoff * cutoff {
                continue;
            }
            let r = square.sqrt();
            let (mut potential, mut slope) = shifted(charges(CHARGE[i] * CHARGE[j]), r, cutoff);
            if i == 0 && j == 0 {
                let (p, s) = shifted(attraction, r, cutoff);
                potential += p;
                slope += s;
            }
            energy += potential;
            for axis in 0..3 {
                let force = -slope * arm[axis] / r;
                on_a[i][axis] += force;
                on_b[j][axis] -= force;
            }
        }
    }
    (on_a, on_b, energy)
}

/// Returns the energy and slope at `r`, less their values at the cut-off.
fn shifted(of: impl Fn(f64) -> (f64, f64), r: f64, cutoff: f64) -> (f64, f64) {
    let ((energy, slope), (last, last_slope)) = (of(r), of(cutoff));
    (energy - last - last_slope * (r - cutoff), slope - last_slope)
}

fn charges(product: f64) -> impl Fn(f64) -> (f64, f64) {
    move |r| (COULOMB * product / r, -COULOMB * product / (r * r))
}

fn attraction(r: f64) -> (f64, f64) {
    let six = (WIDTH / r).powi(6);
    (4.0 * DEPTH * (six * six - six), 4.0 * DEPTH * (6.0 * six - 12.0 * six * six) / r)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forces_are_the_slope_of_the_energy_and_vanish_at_the_cut_off() {
        let a = [[0.0, 0.0, 0.0], [0.8, 0.6, 0.0], [-0.3, 0.9, 0.0]];
        let b = [[3.0, 0.2, 0.1], [3.8, 0.6, 0.0], [3.1, -0.7, 0.4]];
        let (side, cutoff) = (12.0, 5.0);
        let all = |a: &Sites, b: &Sites| {
            forces(&shift(a, b, side, cutoff).expect("they are near"), cutoff)
        };
        let (on_a, on_b, _) = all(&a, &b);
        let step = 1e-6;
        for site in 0..3 {
            for axis in 0..3 {
                let energy = |by: f64| {
                    let mut moved = a;
                    moved[site][axis] += by;
                    all(&moved, &b).2
                };
                let slope = (energy(step) - energy(-step)) / (2.0 * step);
                let force = on_a[site][axis];
                assert!((force + slope).abs() < 1e-3 * slope.abs().max(1.0), "{force} {slope}");
            }
        }
        for axis in 0..3 {
            let sum: f64 = on_a.iter().chain(&on_b).map(|force| force[axis]).sum();
            assert!(sum.abs() < 1e-6);
        }
        let far = b.map(|site| [site[0] + 2.9, site[1] + 3.0, site[2] + 4.5]);
        assert!(shift(&a, &far, 30.0, cutoff).is_none());
    }
}
