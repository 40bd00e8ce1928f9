-- Stores the verdict on a candidate.
insert into penalties (
  candidate_id, compiles, viable, error, rewritten, syntax, extra_elements, not_a_string, code_in_prose, shape,
  wrong_name, title, assertions, forbidden_calls, length_after_debug
)
values (
  :candidate, :compiles, :viable, :error, :rewritten, :syntax, :extra_elements, :not_a_string, :code_in_prose, :shape,
  :wrong_name, :title, :assertions, :forbidden_calls, :length_after_debug
)
