//! Bandog, blocking. Its watchdog is on in every scenario: that is how it is used.

use std::time::Duration;

use bandog::{Client, Options};

pub fn client(url: &str, watchdog: Duration) -> Client {
    Client::new(options(url).watchdog(watchdog)).expect("settings that work")
}

pub fn options(url: &str) -> Options {
    Options::new(url).expect("a url")
}
