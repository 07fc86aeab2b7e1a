"""Matching events with subscriptions, beside one compiled lambda per subscription."""
