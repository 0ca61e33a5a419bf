"""Dashboards, rules and configuration for Prometheus and Grafana, generated from the catalogue."""
