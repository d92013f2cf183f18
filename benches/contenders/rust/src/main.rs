//! `race-rust <contender> <scenario> <url> <json>`: one measurement, one line of JSON.

mod answer;
mod bandog_tasks;
mod bandog_threads;
mod bare;
mod floor;
mod rslock_tasks;
mod tasks;
mod threads;

use answer::{Answer, Given};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, contender, scenario, url, json] = words.as_slice() else {
        eprintln!("race-rust <contender> <scenario> <url> <json>");
        std::process::exit(2);
    };
    let given: Given = serde_json::from_str(json).expect("the measures of a scenario");
    let answer = match contender.as_str() {
        "floor" => floor::run(scenario, url, &given),
        "floor-tokio" => floor::run_tokio(scenario, url, &given),
        "bandog" => threads::run(scenario, url, &given),
        "bandog-tokio" => tasks::run::<bandog_tasks::Bandog>(scenario, url, &given),
        "rslock" => tasks::run::<rslock_tasks::Rslock>(scenario, url, &given),
        other => panic!("no contender {other}"),
    };
    println!("{}", serde_json::to_string(&answer.unwrap_or_else(Answer::unsupported)).expect("plain numbers"));
}
