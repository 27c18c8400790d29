//! waits for the branch `sim`
#[derive(Clone, Debug, clap::Args)]
pub struct Args {}
pub async fn run(_: Args) -> anyhow::Result<()> { anyhow::bail!("not there") }
