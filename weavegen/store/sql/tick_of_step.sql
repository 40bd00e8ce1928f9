-- Whether the tick k is that of the step s, and its blocks are still there: of steps in runs of ticks that were started
-- over, the blocks were dropped, so what the model read before it wrote is lost.
k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run and {store/live_tick}
