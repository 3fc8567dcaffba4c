"""Pages for people, at /console: browse, deploy, sign and verify in a browser.

Pages are made from answers of the API's operations. Their scripts request the same answers again and verify them.
"""
