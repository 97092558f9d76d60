"""Pictures of results, and the page that shows them."""
