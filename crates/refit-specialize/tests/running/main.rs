//! Programs whose functions have versions.

mod constant;
mod course;
mod made;
mod unwound;

#[path = "../../../refit-optimize/tests/copying/replaced.rs"]
mod replaced;

#[path = "../../../refit-probe/tests/probing/stepped.rs"]
mod stepped;

#[path = "../../../refit-splice/tests/splicing/victim.rs"]
#[expect(dead_code, reason = "the tests of splicing ask more of it")]
mod victim;
