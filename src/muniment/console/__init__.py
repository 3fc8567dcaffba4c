"""Pages for people, at /console: browse, deploy, sign and check in a browser.

A page is made from answers of the API's own operations. Its scripts ask the API again and check the answers.
"""
