//! A molecule of water: three sites, their motion, and the forces that bind them.
//!
//! Flexible SPC/Fw water (Wu, Tepper and Voth, J. Chem. Phys. 124, 024503, 2006). Units: Å, ps,
//! atomic mass units; energies are therefore in u Å²/ps², a hundred of which are 1 kJ/mol.

/// A vector.
pub(crate) type Vector = [f64; 3];
/// Oxygen, hydrogen, hydrogen.
pub(crate) type Sites = [Vector; 3];

/// The masses of the sites.
pub(crate) const MASS: [f64; 3] = [15.9994, 1.008, 1.008];
/// The charges of the sites, in elementary charges.
pub(crate) const CHARGE: [f64; 3] = [-0.82, 0.41, 0.41];
/// The energy of a kcal/mol.
pub(crate) const KCAL: f64 = 418.4;

/// The length of an O-H bond at rest, and its stiffness.
const BOND: f64 = 1.012;
const BOND_STIFFNESS: f64 = 1059.162 * KCAL;
/// The angle between the bonds at rest, and its stiffness.
const ANGLE: f64 = 113.24 * std::f64::consts::PI / 180.0;
const ANGLE_STIFFNESS: f64 = 75.90 * KCAL;

/// The order of the predictor: the number of derivatives that are kept beside the position.
const ORDER: usize = 5;
/// Gear's coefficients for an equation of second order with forces that do not depend on the
/// velocity (Allen and Tildesley, Computer Simulation of Liquids, appendix E).
const GEAR: [f64; ORDER] = [19.0 / 120.0, 3.0 / 4.0, 1.0, 1.0 / 2.0, 1.0 / 12.0];

/// The motion of a molecule: the n-th derivative of the position, times dt^n / n!.
#[derive(Clone, Debug)]
pub(crate) struct Molecule {
    motion: [Sites; ORDER],
}

impl Molecule {
    /// Creates a molecule at rest in its shape, moving with the given velocities.
    pub(crate) fn new(center: Vector, turn: f64, velocity: Sites, dt: f64) -> Self {
        let (sin, cos) = (turn.sin(), turn.cos());
        let arm = |side: f64| {
            let (x, y) = (BOND * (ANGLE / 2.0).cos(), side * BOND * (ANGLE / 2.0).sin());
            [center[0] + x * cos - y * sin, center[1] + x * sin + y * cos, center[2]]
        };
        let mut motion = [[[0.0; 3]; 3]; ORDER];
        motion[0] = [center, arm(1.0), arm(-1.0)];
        motion[1] = velocity.map(|v| v.map(|v| v * dt));
        Molecule { motion }
    }

    pub(crate) fn sites(&self) -> &Sites {
        &self.motion[0]
    }

    /// PREDIC: extrapolates the motion by a Taylor series.
    pub(crate) fn predict(&mut self) {
        // Pascal's triangle: adds each derivative to the one below, again and again.
        for from in 0..ORDER - 1 {
            for n in (from..ORDER - 1).rev() {
                for site in 0..3 {
                    for axis in 0..3 {
                        self.motion[n][site][axis] += self.motion[n + 1][site][axis];
                    }
                }
            }
        }
    }

    /// CORREC: corrects the motion by the forces there.
    pub(crate) fn correct(&mut self, forces: &Sites, dt: f64) {
        for (site, forces) in forces.iter().enumerate() {
            for (axis, force) in forces.iter().enumerate() {
                let wanted = force / MASS[site] * dt * dt / 2.0;
                let wrong = wanted - self.motion[2][site][axis];
                for (n, share) in GEAR.into_iter().enumerate() {
                    self.motion[n][site][axis] += share * wrong;
                }
            }
        }
    }

    /// BNDRY: moves a molecule that leaves the box in on the other side.
    pub(crate) fn wrap(&mut self, side: f64) {
        for axis in 0..3 {
            let out = (self.motion[0][0][axis] / side).floor() * side;
            for site in &mut self.motion[0] {
                site[axis] -= out;
            }
        }
    }

    /// KINETI: returns the kinetic energy.
    pub(crate) fn kinetic(&self, dt: f64) -> f64 {
        let energy = |(velocity, mass): (&Vector, f64)| {
            let square: f64 = velocity.iter().map(|v| (v / dt).powi(2)).sum();
            mass * square / 2.0
        };
        self.motion[1].iter().zip(MASS).map(energy).sum()
    }

    /// INTRAF: returns the forces of the bonds and of the angle between them, and their energy.
    pub(crate) fn bonds(&self) -> (Sites, f64) {
        let [oxygen, first, second] = *self.sites();
        let mut forces = [[0.0; 3]; 3];
        let mut energy = 0.0;
        let (a, b) = (difference(first, oxygen), difference(second, oxygen));
        let (la, lb) = (length(a), length(b));
        for (site, arm, len) in [(1, a, la), (2, b, lb)] {
            let stretch = len - BOND;
            energy += BOND_STIFFNESS * stretch * stretch / 2.0;
            add(&mut forces, site, 0, arm.map(|x| -BOND_STIFFNESS * stretch * x / len));
        }
        let cos = (dot(a, b) / (la * lb)).clamp(-1.0, 1.0);
        let bent = cos.acos() - ANGLE;
        energy += ANGLE_STIFFNESS * bent * bent / 2.0;
        // d angle / d cos = -1 / sin.
        let pull = ANGLE_STIFFNESS * bent / (1.0 - cos * cos).sqrt().max(1e-9);
        for (site, arm, len, other, other_len) in [(1, a, la, b, lb), (2, b, lb, a, la)] {
            let force =
                |axis: usize| pull * (other[axis] / other_len - cos * arm[axis] / len) / len;
            add(&mut forces, site, 0, [force(0), force(1), force(2)]);
        }
        (forces, energy)
    }
}

/// Adds a force to a site, and its opposite to another.
fn add(forces: &mut Sites, to: usize, against: usize, force: Vector) {
    for axis in 0..3 {
        forces[to][axis] += force[axis];
        forces[against][axis] -= force[axis];
    }
}

pub(crate) fn difference(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

pub(crate) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(crate) fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forces_of_the_bonds_are_the_slope_of_their_energy() {
        let mut molecule = Molecule::new([1.0, 2.0, 3.0], 0.3, [[0.0; 3]; 3], 1e-3);
        molecule.motion[0][1][0] += 0.07;
        molecule.motion[0][2][2] -= 0.05;
        let (forces, _) = molecule.bonds();
        let step = 1e-6;
        for (site, force) in forces.iter().enumerate() {
            for (axis, force) in force.iter().enumerate() {
                let mut energy = |by: f64| {
                    molecule.motion[0][site][axis] += by;
                    let energy = molecule.bonds().1;
                    molecule.motion[0][site][axis] -= by;
                    energy
                };
                let slope = (energy(step) - energy(-step)) / (2.0 * step);
                assert!((force + slope).abs() < 1e-2 * slope.abs().max(1.0), "{force} {slope}");
            }
        }
    }
}
