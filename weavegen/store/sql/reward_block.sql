-- Records a block's share of the reward, and the correction of its score by preferences.
update blocks set reward = :share, preference = :preference where trace_id = :trace and index = :index
