-- Whether one of the actions of a tick that is over, among these blocks, ran. An action that waited, for example for a
-- subagent, has no result of its own: the block with the answer has, and if that failed, the action has a correction.
bool_or(coalesce(ran, coalesce(preference, 0) >= 0)) filter (
  where type = 'action' and (ran is not null or executed_by is not null))
