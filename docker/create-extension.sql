-- Run once, when the image makes a new cluster: taskq in the database POSTGRES_DB.
create extension if not exists taskq;
