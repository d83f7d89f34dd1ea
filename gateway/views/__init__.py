"""What people look at, read from the tables: plain functions behind both `/admin` and the pages, each bound in SQL to what is seen."""
