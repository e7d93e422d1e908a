//! Measures refit against its peers.

mod calls;
mod counter;
mod stats;

fn main() {
    let calls = calls::measure();
    for (n, s) in [
        ("plain", &calls.plain),
        ("refit", &calls.refit),
        ("refit within request", &calls.within),
        ("arc-swap", &calls.arc_swap),
        ("rwlock", &calls.rwlock),
        ("epoch", &calls.epoch),
    ] {
        println!("{n:22} {} over plain {:.2}", s.show(2), s.median() - calls.plain.median());
    }
}
