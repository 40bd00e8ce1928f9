-- Records why the model could not be asked about an item.
update campaign_items set failure = :reason where id = :item
