//! Probes of a program whose blocks and times are known.

mod copies;
mod counts;
mod cover;
mod declared;
mod drill;
mod kept;
mod members;
mod messages;
mod program;
mod sequences;
mod stacks;
mod stepped;
mod tails;
mod taken;
mod thrown;
mod tracepoints;
mod unwound;

#[path = "../../../refit-splice/tests/splicing/victim.rs"]
#[expect(dead_code, reason = "the tests of splicing ask more of it")]
mod victim;
