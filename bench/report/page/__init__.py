"""What a report says beside its figures: first page, claims, checks, objections; and how HTML is made."""
