// This file compiles the headers that tests share.
