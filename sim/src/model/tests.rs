//! Tests what the engine model does with requests, blocks and time.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const START: Duration = Duration::ZERO;

/// Costs that are easy to add up: 1 ms a prompt token, 100 ms a step, 10 ms a decoding request.
pub(super) fn settings() -> ModelSettings {
    ModelSettings {
        block_size: 4,
        blocks: 32,
        seats: 4,
        queue: 100,
        step_tokens: 64,
        prefill_per_token: MS,
        decode_step: 100 * MS,
        decode_per_request: 10 * MS,
        decode_per_context_token: START,
    }
}

pub(super) fn model(change: impl FnOnce(&mut ModelSettings)) -> Model {
    let mut settings = settings();
    change(&mut settings);
    Model::new(settings).unwrap()
}

pub(super) fn request(prompt: impl IntoIterator<Item = u32>, output_tokens: usize) -> Request {
    Request { prompt: Prompt::Tokens(prompt.into_iter().collect()), salt: 0, sample: 0, output_tokens }
}

/// Runs until nothing can happen any more.
pub(super) fn run(model: &mut Model) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(next) = model.next_event() {
        all.extend(model.advance(next));
    }
    all
}

pub(super) fn token_times(events: &[Event], of: RequestId) -> Vec<u128> {
    let mine = events.iter().filter(|e| matches!(e.what, Happening::Token { id, .. } if id == of));
    mine.map(|e| e.at.as_millis()).collect()
}

pub(super) fn reports(events: &[Event]) -> Vec<Report> {
    let reports = events.iter().filter_map(|e| match &e.what {
        Happening::Finished { report, .. } => Some(report.clone()),
        _ => None,
    });
    reports.collect()
}

#[test]
fn an_idle_engine_has_nothing_to_do() {
    let mut model = model(|_| ());
    assert_eq!(model.next_event(), None);
    assert_eq!(model.advance(1000 * MS), []);
}

#[test]
fn one_request_pays_its_prompt_then_a_step_a_token() {
    let mut model = model(|_| ());
    let id = model.arrive(5 * MS, &request(0..10, 3)).unwrap();
    let events = run(&mut model);
    assert_eq!(token_times(&events, id), [15, 125, 235]);
    let [report] = reports(&events).try_into().unwrap();
    assert_eq!((report.queued, report.prefill, report.decode), (START, 10 * MS, 220 * MS));
    assert_eq!((report.prompt_tokens, report.cached_tokens, report.output_tokens), (10, 0, 3));
}

#[test]
fn requests_of_one_moment_share_their_steps() {
    let mut model = model(|_| ());
    let a = model.arrive(START, &request(0..10, 2)).unwrap();
    let b = model.arrive(START, &request(100..110, 2)).unwrap();
    let events = run(&mut model);
    assert_eq!(token_times(&events, a), [20, 140]);
    assert_eq!(token_times(&events, b), [20, 140]);
}

#[test]
fn a_later_request_joins_the_batch_at_the_next_step() {
    let mut model = model(|_| ());
    let a = model.arrive(START, &request(0..10, 3)).unwrap();
    model.advance(50 * MS);
    let b = model.arrive(50 * MS, &request(100..110, 2)).unwrap();
    assert_eq!(model.load().waiting, 1);
    let events = run(&mut model);
    // the step of a's second token ends at 120; b's prompt and a's third token share the next
    assert_eq!(token_times(&events, a), [120, 240]);
    assert_eq!(token_times(&events, b), [240, 350]);
}

#[test]
fn requests_beyond_the_seats_wait_in_order() {
    let mut model = model(|s| s.seats = 2);
    let ids: Vec<_> = (0..5).map(|i| model.arrive(START, &request(i * 10..i * 10 + 4, 2)).unwrap()).collect();
    model.advance(START);
    assert_eq!((model.load().running, model.load().waiting), (2, 3));
    let events = run(&mut model);
    let firsts: Vec<u128> = ids.iter().map(|&id| token_times(&events, id)[0]).collect();
    assert_eq!(firsts, [8, 8, 136, 136, 260]);
}

#[test]
fn a_long_prompt_is_computed_in_pieces_beside_the_decoding() {
    let mut model = model(|s| s.step_tokens = 8);
    let a = model.arrive(START, &request(0..4, 4)).unwrap();
    model.advance(4 * MS);
    let b = model.arrive(5 * MS, &request(100..114, 1)).unwrap();
    let events = run(&mut model);
    // a's next steps: alone to 114, then with 7 tokens of b twice
    assert_eq!(token_times(&events, a), [114, 231, 348]);
    assert_eq!(token_times(&events, b), [348]);
}

#[test]
fn a_cached_prefix_costs_nothing() {
    let mut model = model(|_| ());
    model.arrive(START, &request(0..12, 1)).unwrap();
    run(&mut model);
    // 8 of the first 10 tokens fill two blocks that are known
    let id = model.arrive(1000 * MS, &request((0..10).chain(50..52), 1)).unwrap();
    let events = run(&mut model);
    assert_eq!(token_times(&events, id), [1004]);
    assert_eq!(reports(&events)[0].cached_tokens, 8);
}

#[test]
fn a_prompt_that_is_cached_whole_still_computes_its_last_block() {
    let mut model = model(|_| ());
    for (at, cached) in [(0, 0), (1000, 8)] {
        model.arrive(at * MS, &request(0..12, 1)).unwrap();
        let events = run(&mut model);
        assert_eq!(reports(&events)[0].cached_tokens, cached);
    }
}

#[test]
fn an_answer_is_cached_for_the_next_turn() {
    let mut model = model(|_| ());
    model.arrive(START, &request(0..8, 9)).unwrap();
    let said = run(&mut model).into_iter().filter_map(|e| match e.what {
        Happening::Token { token, .. } => Some(token),
        _ => None,
    });
    let turn: Vec<u32> = (0..8).chain(said).chain(90..95).collect();
    model.arrive(5000 * MS, &request(turn, 1)).unwrap();
    assert_eq!(reports(&run(&mut model))[0].cached_tokens, 16);
}

#[test]
fn equal_prompts_that_start_together_share_their_blocks() {
    let mut model = model(|_| ());
    for _ in 0..3 {
        model.arrive(START, &request(0..13, 1)).unwrap();
    }
    model.advance(START);
    assert_eq!(model.load().used_blocks, 3 + 3);
    let cached: Vec<_> = reports(&run(&mut model)).iter().map(|r| r.cached_tokens).collect();
    assert_eq!(cached, [0, 12, 12]);
}

#[test]
fn salted_requests_share_nothing() {
    let mut model = model(|_| ());
    for salt in [1, 2] {
        model.arrive(START, &Request { salt, ..request(0..12, 1) }).unwrap();
        assert_eq!(reports(&run(&mut model))[0].cached_tokens, 0);
    }
}

#[test]
fn named_pieces_hit_where_the_names_are_equal() {
    let mut model = model(|_| ());
    for (ids, cached) in [([7, 8], 0), ([7, 9], 8), ([6, 8], 0)] {
        let prompt = Prompt::Named { ids: ids.to_vec(), per_id: 8, tokens: 15 };
        model.arrive(model.now, &Request { prompt, salt: 0, sample: 0, output_tokens: 1 }).unwrap();
        assert_eq!(reports(&run(&mut model))[0].cached_tokens, cached, "{ids:?}");
    }
}

#[test]
fn the_least_recently_used_prefix_is_evicted_from_its_end() {
    let mut model = model(|s| s.blocks = 8);
    for (first, cached) in [(0, 0), (100, 0), (0, 8), (200, 0), (0, 8), (100, 4)] {
        model.arrive(model.now, &request(first..first + 12, 1)).unwrap();
        assert_eq!(reports(&run(&mut model))[0].cached_tokens, cached, "prompt from {first}");
    }
}

#[test]
fn a_request_waits_while_its_blocks_are_taken() {
    let mut model = model(|s| s.blocks = 6);
    let a = model.arrive(START, &request(0..16, 2)).unwrap();
    let b = model.arrive(START, &request(100..116, 1)).unwrap();
    model.advance(START);
    assert_eq!((model.load().running, model.load().waiting), (1, 1));
    let events = run(&mut model);
    assert_eq!(token_times(&events, a), [16, 126]);
    assert_eq!(token_times(&events, b), [142]);
}

#[test]
fn the_newest_request_gives_way_when_blocks_run_out_and_ends_all_the_same() {
    let mut model = model(|s| s.blocks = 6);
    model.arrive(START, &request(0..8, 12)).unwrap();
    model.arrive(START, &request(100..108, 12)).unwrap();
    let events = run(&mut model);
    assert!(events.iter().any(|e| matches!(e.what, Happening::Preempted { id } if id == RequestId(1))));
    assert!(!events.iter().any(|e| matches!(e.what, Happening::Preempted { id } if id == RequestId(0))));
    assert_eq!(reports(&events).iter().map(|r| r.output_tokens).collect::<Vec<_>>(), [12, 12]);
    assert_eq!(token_times(&events, RequestId(1)).len(), 12);
}

#[test]
fn an_answer_ends_where_the_blocks_end() {
    let mut model = model(|s| s.blocks = 3);
    model.arrive(START, &request(0..8, 1000)).unwrap();
    let [report] = reports(&run(&mut model)).try_into().unwrap();
    assert_eq!((report.output_tokens, report.asked_tokens), (4, 1000));
}

#[test]
fn what_can_never_run_is_refused() {
    let mut model = model(|s| (s.blocks, s.queue) = (3, 1));
    assert_eq!(model.arrive(START, &request([], 1)), Err(Refusal::EmptyPrompt));
    assert_eq!(model.arrive(START, &request(0..12, 1)), Err(Refusal::PromptTooLong { tokens: 12, window: 12 }));
    assert!(model.arrive(START, &request(0..4, 1)).is_ok());
    assert_eq!(model.arrive(START, &request(0..4, 1)), Err(Refusal::QueueFull { queue: 1 }));
}

#[test]
fn a_late_look_sees_every_step_at_its_own_time() {
    let mut model = model(|_| ());
    let id = model.arrive(START, &request(0..10, 3)).unwrap();
    assert_eq!(token_times(&model.advance(10_000 * MS), id), [10, 120, 230]);
    assert_eq!(model.next_event(), None);
}

#[test]
fn aborts_bring_the_engine_back_to_idle() {
    let mut model = model(|s| s.seats = 2);
    let ids: Vec<_> = (0..5).map(|i| model.arrive(START, &request(i * 10..i * 10 + 9, 50)).unwrap()).collect();
    model.advance(300 * MS);
    ids.iter().for_each(|&id| model.abort(310 * MS, id));
    ids.iter().for_each(|&id| model.abort(310 * MS, id));
    let load = model.load();
    assert_eq!((load.running, load.waiting, load.used_blocks), (0, 0, 0));
    let events = run(&mut model);
    assert_eq!(events.iter().filter(|e| matches!(e.what, Happening::Aborted { .. })).count(), 5);
    assert_eq!(model.next_event(), None);
}

#[test]
fn the_cache_is_reset_only_while_nothing_runs() {
    let mut model = model(|_| ());
    model.arrive(START, &request(0..12, 1)).unwrap();
    model.advance(START);
    assert!(!model.reset_prefix_cache());
    run(&mut model);
    assert!(model.reset_prefix_cache());
    model.arrive(1000 * MS, &request(0..12, 1)).unwrap();
    assert_eq!(reports(&run(&mut model))[0].cached_tokens, 0);
}

#[derive(Clone, Debug)]
enum Call {
    Arrive { family: u32, prompt: u32, output: usize },
    Abort(u64),
    Wait(u32),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let arrive =
        (0..3_u32, 1..30_u32, 1..20_usize).prop_map(|(family, prompt, output)| Call::Arrive { family, prompt, output });
    let call = prop_oneof![3 => arrive, 1 => (0..30_u64).prop_map(Call::Abort), 2 => (0..400_u32).prop_map(Call::Wait)];
    proptest::collection::vec(call, 1..60)
}

/// Makes the calls, then runs to the end; checks on the way that no more blocks are held than there are.
fn play(calls: &[Call], blocks: usize) -> (usize, Vec<Event>, Load) {
    let model = model(|s| (s.blocks, s.seats, s.step_tokens) = (blocks, 3, 16));
    let (arrived, events, loads) = play_on(model, calls, blocks, 0);
    (arrived, events, loads.last().copied().unwrap())
}

/// As `play`, with the load after every call.
fn play_on(mut model: Model, calls: &[Call], blocks: usize, sample: u64) -> (usize, Vec<Event>, Vec<Load>) {
    let mut loads = Vec::new();
    let (mut arrived, mut events, mut now) = (0, Vec::new(), Duration::ZERO);
    for call in calls {
        match *call {
            Call::Arrive { family, prompt, output } => {
                let prompt = request(family * 100..family * 100 + prompt, output);
                let prompt = Request { sample: sample * arrived as u64, ..prompt };
                arrived += usize::from(model.arrive(now, &prompt).is_ok());
            }
            Call::Abort(id) => model.abort(now, RequestId(id)),
            Call::Wait(ms) => {
                now += ms * MS;
                events.extend(model.advance(now));
            }
        }
        let load = model.load();
        assert!(load.used_blocks <= blocks && load.cached_blocks <= blocks && load.running <= 3, "{load:?}");
        // A brief model names the blocks of answers a little later.
        loads.push(Load { cached_blocks: 0, ..load });
    }
    events.extend(run(&mut model));
    loads.push(Load { cached_blocks: 0, ..model.load() });
    (arrived, events, loads)
}

/// What a brief model tells of, too.
fn in_brief(mut events: Vec<Event>) -> Vec<Event> {
    events.retain(|e| match e.what {
        Happening::Token { index, .. } => index == 0,
        Happening::Step { .. } => false,
        Happening::Admitted { .. }
        | Happening::Preempted { .. }
        | Happening::Finished { .. }
        | Happening::Aborted { .. } => true,
    });
    events
}

proptest! {
    #[test]
    fn every_request_ends_once_and_the_engine_is_idle_again(calls in calls(), blocks in 8..20_usize) {
        let (arrived, events, load) = play(&calls, blocks);
        let mut ended: Vec<_> = events.iter().filter_map(|e| match e.what {
            Happening::Finished { id, .. } | Happening::Aborted { id } => Some(id),
            _ => None,
        }).collect();
        ended.sort();
        ended.dedup();
        prop_assert_eq!(ended.len(), arrived);
        prop_assert_eq!((load.running, load.waiting, load.used_blocks), (0, 0, 0));
        prop_assert!(events.is_sorted_by_key(|e| e.at));
    }

    #[test]
    fn a_brief_model_ends_every_request_once_where_blocks_run_out(calls in calls(), blocks in 8..20_usize) {
        let settings = ModelSettings { blocks, seats: 3, step_tokens: 16, ..settings() };
        let (arrived, events, loads) = play_on(Model::brief(settings).unwrap(), &calls, blocks, 7);
        let ended = |e: &&Event| matches!(e.what, Happening::Finished { .. } | Happening::Aborted { .. });
        prop_assert_eq!(events.iter().filter(ended).count(), arrived);
        prop_assert_eq!(loads.last(), Some(&Load::default()));
    }

    #[test]
    fn equal_calls_give_equal_events(calls in calls()) {
        prop_assert_eq!(play(&calls, 12), play(&calls, 12));
    }

    #[test]
    fn a_brief_model_says_the_same_at_the_same_times(calls in calls(), context in 0..3_u32) {
        // Blocks of answers are named later, which changes what is pushed out, so there is room for all here.
        let blocks = 1000;
        let settings = ModelSettings {
            blocks,
            seats: 3,
            step_tokens: 16,
            decode_per_context_token: MS * context,
            ..settings()
        };
        let (n, events, loads) = play_on(Model::new(settings.clone()).unwrap(), &calls, blocks, 7);
        let brief = play_on(Model::brief(settings).unwrap(), &calls, blocks, 7);
        prop_assert_eq!((n, in_brief(events), loads), brief);
    }
}
