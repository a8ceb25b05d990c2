create function taskq._duty_archive() returns bigint
  language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return 0;
end
$$;
