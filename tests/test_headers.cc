// The headers that tests share are compiled with this file, which needs to be there for that.
