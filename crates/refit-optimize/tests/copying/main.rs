//! Programs whose functions run in copies, in any order.

mod arranged;
mod course;
mod functions;
mod proved;
mod replaced;
mod unwound;

#[path = "../../../refit-probe/tests/probing/stepped.rs"]
mod stepped;

#[path = "../../../refit-splice/tests/splicing/victim.rs"]
#[expect(dead_code, reason = "the tests of splicing ask more of it")]
mod victim;
