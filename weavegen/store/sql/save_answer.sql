-- Stores the model's answer to a question about an item of a campaign.
insert into answers (item_id, question, truth, yes, no, score, model, server)
values (:item, :question, :truth, :yes, :no, :score, :model, :server)
