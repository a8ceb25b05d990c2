//! The README's Rust program that serves board and metrics; a test compares the two and runs this one.
use postgres::{Client, NoTls};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut db = Client::connect(&std::env::var("DATABASE_URL")?, NoTls)?;
    for stream in TcpListener::bind(std::env::var("LISTEN")?)?.incoming() {
        let (mut stream, mut asked) = (BufReader::new(stream?), String::new());
        stream.read_line(&mut asked)?;
        let (kind, verb) =
            if asked.contains("/metrics") { ("plain", "metrics") } else { ("html", "dashboard") };
        let body: String = db.query_one(&format!("select taskq.{verb}()"), &[])?.get(0);
        write!(
            stream.get_mut(),
            "HTTP/1.0 200 OK\r\nContent-Type: text/{kind}; charset=utf-8\r\n\r\n{body}"
        )?;
    }
    Ok(())
}
