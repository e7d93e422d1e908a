//! Measures refit against its peers.

mod calls;
mod counter;
mod stats;
mod swaps;

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
    let c = counter::object();
    let idle = swaps::idle(c.id(), "plain", 10000);
    println!("idle {} max {:.1}", idle.total.show(2), idle.total.max());
    let busy = swaps::busy(c.id(), "plain", 10000, &|_| {
        c.next(1);
    });
    println!(
        "busy {} max {:.1}; beyond {} max {:.1}",
        busy.total.show(2),
        busy.total.max(),
        busy.beyond.show(2),
        busy.beyond.max()
    );
}
