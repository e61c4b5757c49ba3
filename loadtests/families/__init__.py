"""Families of overload control: the same requests and nodes for proxies, their extensions and libraries."""
