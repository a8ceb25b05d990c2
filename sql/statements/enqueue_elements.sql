-- Takes the elements of enqueue_many apart, in order; the JSON in them stays as it is. The last
-- column says what is wrong with an element's form, NULL if nothing is.
-- $1 the array
select e.value ->> 'task_type', e.value -> 'payload', e.value ->> 'queue',
       case when jsonb_typeof(e.value -> 'priority') = 'number' then e.value ->> 'priority' end,
       e.value ->> 'run_at', e.value ->> 'delay',
       case when jsonb_typeof(e.value -> 'max_retries') = 'number' then e.value ->> 'max_retries' end,
       e.value ->> 'unique_key', e.value ->> 'unique_until', e.value ->> 'unique_for', e.value ->> 'on_conflict',
       nullif(e.value -> 'headers', 'null'), e.value ->> 'group_key',
       case
         when jsonb_typeof(e.value) <> 'object' then 'it is not an object'
         when e.value - array['task_type', 'payload', 'queue', 'priority', 'run_at', 'delay',
                              'max_retries', 'unique_key', 'unique_until', 'unique_for', 'on_conflict', 'group_key', 'headers'] <> '{}'
           then 'it has a field that enqueue has no argument for'
         else (select format('field %s must be a %s', field.name, field.type)
                 from (values ('task_type', 'string'), ('queue', 'string'), ('priority', 'number'),
                              ('run_at', 'string'), ('delay', 'string'), ('max_retries', 'number'),
                              ('unique_key', 'string'), ('unique_until', 'string'), ('unique_for', 'string'),
                              ('on_conflict', 'string'), ('group_key', 'string')) field(name, type)
                where jsonb_typeof(e.value -> field.name) not in (field.type, 'null')
                limit 1)
       end
  from jsonb_array_elements($1) with ordinality e(value, ord)
 order by e.ord
