# nothing
/* at all */
