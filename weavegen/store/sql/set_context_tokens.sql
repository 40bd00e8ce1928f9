-- Records how many tokens the model read before the text of an item.
update campaign_items set context_tokens = :tokens where id = :item
