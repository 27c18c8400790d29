//! Many engines at once.

use super::rig::{PORTS, Rig};

#[tokio::test(start_paused = true)]
async fn two_thousand_engines_are_heard() {
    let mut rig = Rig::new(PORTS, &[]);
    let hosts: Vec<String> = (0..2000).map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect();
    let mut ports: Vec<_> = hosts.iter().map(|host| rig.net.listen(host, 5557)).collect();
    let endpoints: Vec<(&str, &str, u16)> = hosts.iter().map(|h| (h.as_str(), h.as_str(), 8000)).collect();
    rig.endpoints(&endpoints);
    let mut engines = Vec::new();
    for port in &mut ports {
        engines.push(port.publisher().await);
    }
    for engine in &mut engines {
        engine.send(0, "x").await;
    }
    let mut told: Vec<String> = Vec::new();
    for _ in &hosts {
        told.push(rig.told().await);
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), hosts.len());
    let report = rig.kv.report();
    assert_eq!((report[0].total, report[0].endpoints.len()), (2000, 1000));
    rig.endpoints(&endpoints[..1]);
    for engine in engines.drain(1..) {
        engine.closed().await;
    }
    engines[0].send(1, "y").await;
    rig.is_told(&[&format!("{} y", hosts[0])]).await;
}
