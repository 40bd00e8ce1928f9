-- Records that a view was made.
insert into views (name, position, sha256) values (:name, :position, :sha256)
