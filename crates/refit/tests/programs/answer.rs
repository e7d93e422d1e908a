//! Answers line by line; some of it panics.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

fn deep(number: i64, depth: u32) -> i64 {
    let kept = vec![number; depth as usize];
    if depth == 0 && number % 3 == 0 {
        std::panic::panic_any(number);
    }
    if depth == 0 { number } else { deep(number, depth - 1) + kept.iter().sum::<i64>() }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let number: i64 = line.expect("a line").trim().parse().expect("a number");
        *seen.entry(format!("{:x}", number % 13)).or_default() += 1;
        let found = std::panic::catch_unwind(|| deep(number, 9));
        let found = found.unwrap_or_else(|thrown| -*thrown.downcast::<i64>().expect("a number"));
        let threads: Vec<_> = (0..3)
            .map(|part| std::thread::spawn(move || (0..1000).fold(part, |all, n| all * 7 % 1009 + n)))
            .collect();
        let sum: i64 = threads.into_iter().map(|one| one.join().expect("its sum")).sum();
        println!("{found} {sum} {} {:.3}", seen.len(), number as f64 / 7.0);
        std::io::stdout().flush().expect("written");
    }
}
