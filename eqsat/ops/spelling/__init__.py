"""Program → program before the search: one spelling of what can be spelled in many ways."""
